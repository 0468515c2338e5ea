"""A causal transformer, pre-norm, on a batch of token sequences.

Its dropout is drawn from one random number per sample by an integer hash: as a decision transformer
drops hundreds of millions of values a step, a cryptographic generator would take as long as the
network itself.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Shaped, UInt


class Dropout(NamedTuple):
    """What is dropped: a share of values, chosen by one number per sample."""

    seeds: UInt[Array, " b"]
    rate: float

    def __call__(self, x: Float[Array, "b ..."], site: int) -> Float[Array, "b ..."]:
        """Zero a share of the values and scale up the rest; every site draws its own."""
        kept = kept_values(self.seeds, site, x[0].size, self.rate).reshape(x.shape)
        return jnp.where(kept, x / (1.0 - self.rate), 0.0)


def kept_values(seeds: UInt[Array, " b"], site: int, size: int, rate: float) -> Bool[Array, "b _"]:
    """Which of `size` values of each sample are kept: a multiply-shift hash above a threshold."""
    site_seeds = (seeds + jnp.uint32(site * 0x9E3779B9 % 2**32)) * jnp.uint32(0x85EBCA6B)
    x = site_seeds[:, None] + (jnp.arange(size, dtype=jnp.uint32) * jnp.uint32(0xC2B2AE35))[None]
    for multiplier, shift in ((0x7FEB352D, 16), (0x846CA68B, 15)):
        x = (x ^ (x >> shift)) * jnp.uint32(multiplier)
    return (x ^ (x >> 16)) >= jnp.uint32(int(rate * 2**32))


class Linear(eqx.Module):
    """x W + b on the last axis."""

    weight: Float[Array, "i o"]
    bias: Float[Array, " o"]

    def __init__(self, in_size: int, out_size: int, *, key: Key[Array, ""], std: float = 0.02):
        self.weight = std * jax.random.normal(key, (in_size, out_size))
        self.bias = jnp.zeros(out_size)

    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
        """One matrix product, however many axes lead."""
        rows = x.reshape(-1, x.shape[-1])
        return (rows @ self.weight + self.bias[None]).reshape(*x.shape[:-1], -1)


class Norm(eqx.Module):
    """Zero mean and unit variance over the last axis, then scale and shift."""

    scale: Float[Array, " d"]
    shift: Float[Array, " d"]

    def __init__(self, size: int):
        self.scale, self.shift = jnp.ones(size), jnp.zeros(size)

    def __call__(self, x: Float[Array, "b n d"]) -> Float[Array, "b n d"]:
        """Normalise every token."""
        x = x - x.mean(-1, keepdims=True)
        x = x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5)
        return x * self.scale[None, None] + self.shift[None, None]


class Block(eqx.Module):
    """Attention, then two layers with a GELU; each added to what came in."""

    before_attention: Norm
    inward: Linear
    outward: Linear
    before_layers: Norm
    up: Linear
    down: Linear

    def __init__(self, size: int, *, key: Key[Array, ""]):
        keys = jax.random.split(key, 4)
        self.before_attention, self.before_layers = Norm(size), Norm(size)
        # PyTorch's own for the packed projection, which the released program leaves as it is.
        self.inward = Linear(size, 3 * size, key=keys[0], std=(2.0 / (4 * size)) ** 0.5)
        self.outward = Linear(size, size, key=keys[1])
        self.up = Linear(size, 4 * size, key=keys[2])
        self.down = Linear(4 * size, size, key=keys[3])


def attention(
    q: Float[Array, "b m h e"],
    k: Float[Array, "b n h e"],
    v: Float[Array, "b n h e"],
    position: Int[np.ndarray, " m"],
    drop: Dropout | None,
    site: int,
) -> Float[Array, "b m h e"]:
    """softmax(q k / √e) v, over the tokens up to each query's own position, which rise.

    Half of the queries at a time: the earlier ones never look at the later tokens, a quarter of all
    products. Takes two sites of dropout.
    """
    found, first = [], 0
    for positions in np.split(position, [len(position) // 2]):
        if not len(positions):
            continue
        seen, last = positions[-1] + 1, first + len(positions)
        scores = jnp.einsum("bmhe,bnhe->bhmn", q[:, first:last], k[:, :seen]) / q.shape[-1] ** 0.5
        past = jnp.arange(seen)[None] <= jnp.asarray(positions)[:, None]
        weights = jax.nn.softmax(jnp.where(past[None, None], scores, -1e30), axis=-1)
        weights = drop(weights, site + (first > 0)) if drop else weights
        found.append(jnp.einsum("bhmn,bnhe->bmhe", weights, v[:, :seen]))
        first = last
    return jnp.concatenate(found, axis=1)


Read = tuple[int, int] | None
"""Which tokens are read: (period, first) those with number mod period >= first; None: all."""


def take(x: Shaped[Array, "b n *d"], read: Read) -> Shaped[Array, "b m *d"]:
    """The tokens that are read, as a slice: the gradient of a gather would be a slow scatter."""
    if read is None:
        return x
    period, first = read
    steps = x.reshape(x.shape[0], -1, period, *x.shape[2:])
    return steps[:, :, first:].reshape(x.shape[0], -1, *x.shape[2:])


def run_block(
    block: Block,
    x: Float[Array, "b n d"],
    read: Read,
    *,
    heads: int,
    drop: Dropout | None,
    site: int,
) -> Float[Array, "b m d"]:
    """The block's output at the tokens that are read; all tokens are attended to."""
    size = x.shape[-1]
    z = block.before_attention(x)
    w, b = block.inward.weight, block.inward.bias
    everywhere = z.reshape(-1, size) @ w[:, size:] + b[None, size:]
    k, v = jnp.split(everywhere.reshape(*x.shape[:2], 2 * size), 2, axis=-1)
    q = take(z, read).reshape(-1, size) @ w[:, :size] + b[None, :size]
    q, k, v = (y.reshape(len(x), -1, heads, size // heads) for y in (q, k, v))
    number, (period, first) = np.arange(x.shape[1]), read or (1, 0)
    position = number[number % period >= first]
    gathered = attention(q, k, v, position, drop, site)
    y = block.outward(gathered.reshape(len(x), -1, size))
    x = take(x, read) + (drop(y, site + 2) if drop else y)
    y = block.down(jax.nn.gelu(block.up(block.before_layers(x)), approximate=False))
    return x + (drop(y, site + 3) if drop else y)


class Transformer(eqx.Module):
    """Norm, blocks, norm."""

    first: Norm
    blocks: tuple[Block, ...]
    last: Norm

    def __init__(self, size: int, blocks: int, *, key: Key[Array, ""]):
        self.first, self.last = Norm(size), Norm(size)
        self.blocks = tuple(Block(size, key=k) for k in jax.random.split(key, blocks))

    def __call__(
        self,
        tokens: Float[Array, "b n d"],
        read: Read = None,
        *,
        heads: int,
        drop: Dropout | None = None,
    ) -> Float[Array, "b m d"]:
        """Features of the tokens that are read; the last block computes no others."""
        x = self.first(tokens)
        x = drop(x, 0) if drop else x
        for i, block in enumerate(self.blocks):
            wanted = read if i == len(self.blocks) - 1 else None
            x = run_block(block, x, wanted, heads=heads, drop=drop, site=1 + 4 * i)
        return self.last(x)
