"""Networks, called like functions: `v(s, R, C, t)` on the page is V(s, R^, C^, t') in the paper."""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


class EmbeddedMLP(eqx.Module):
    """An MLP whose inputs each pass a linear embedding first; ReLU between linear layers.

    The embeddings are linear and so is the first layer, hence embedding, concatenation and first
    layer collapse into one small matrix: W_1 (E_1 x_1 + e_1) + W_2 (E_2 x_2 + e_2) + .. = M x + m.
    The parameters stay those of the paper and so do their gradients; only the wide product is never
    formed. Activations are (features, batch): weight gradients are then products of the fast kind.
    """

    embeddings: tuple[Float[Array, "e _"], ...]
    shifts: tuple[Float[Array, " e"], ...]
    weights: tuple[Float[Array, "_ _"], ...]
    """Each (outputs, inputs)."""
    biases: tuple[Float[Array, " _"], ...]

    def __init__(
        self,
        in_sizes: Sequence[int],
        out_size: int,
        *,
        embedding: int,
        hidden: int,
        layers: int,
        key: Key[Array, ""],
    ):
        sizes = [embedding * len(in_sizes)] + [hidden] * (layers - 1) + [out_size]
        embedded = [(embedding, i) for i in in_sizes]
        shapes = embedded + [(o, i) for i, o in itertools.pairwise(sizes)]
        # Uniform with variance gain / (3 inputs): He before a ReLU, small at the output.
        gains = [3.0] * len(in_sizes) + [6.0] * (layers - 1) + [1.0]
        bounds = [(gain / i) ** 0.5 for gain, (_, i) in zip(gains, shapes, strict=True)]
        matrices = tuple(
            bound * draw for bound, draw in zip(bounds, _draws(key, shapes), strict=True)
        )
        self.embeddings, self.weights = matrices[: len(in_sizes)], matrices[len(in_sizes) :]
        self.shifts = tuple(jnp.zeros(embedding) for _ in in_sizes)
        self.biases = tuple(jnp.zeros(o) for o in sizes[1:])

    def __call__(self, *inputs: Float[Array, "b _"]) -> Float[Array, "b o"]:
        """Evaluate on a batch; one argument per embedded input."""
        parts = jnp.split(self.weights[0], len(inputs), axis=1)
        fused = jnp.concatenate(
            [w @ e for w, e in zip(parts, self.embeddings, strict=True)], axis=1
        )
        shift = self.biases[0] + sum(w @ e for w, e in zip(parts, self.shifts, strict=True))
        x = fused @ jnp.concatenate(inputs, axis=1).T + shift[:, None]
        return _layers(x, self.weights[1:], self.biases[1:]).T


class MLP(eqx.Module):
    """A plain MLP on the concatenation of its inputs; ReLU between linear layers."""

    weights: tuple[Float[Array, "_ _"], ...]
    """Each (outputs, inputs)."""
    biases: tuple[Float[Array, " _"], ...]

    def __init__(
        self, in_size: int, out_size: int, *, hidden: int, layers: int, key: Key[Array, ""]
    ):
        sizes = [in_size] + [hidden] * (layers - 1) + [out_size]
        shapes = [(o, i) for i, o in itertools.pairwise(sizes)]
        # Uniform within 1 / sqrt(inputs), PyTorch's own: the published settings were found with it.
        self.weights = tuple(
            draw / i**0.5 for draw, (_, i) in zip(_draws(key, shapes), shapes, strict=True)
        )
        self.biases = tuple(jnp.zeros(o) for o in sizes[1:])

    def __call__(self, *inputs: Float[Array, "b _"]) -> Float[Array, "b o"]:
        """Evaluate on a batch."""
        x = self.weights[0] @ jnp.concatenate(inputs, axis=1).T + self.biases[0][:, None]
        return _layers(x, self.weights[1:], self.biases[1:]).T


def _layers(x: Float[Array, "_ b"], weights, biases) -> Float[Array, "_ b"]:
    for weight, bias in zip(weights, biases, strict=True):
        x = weight @ jax.nn.relu(x) + bias[:, None]
    return x


def _draws(key: Key[Array, ""], shapes: list[tuple[int, int]]) -> list[Float[Array, "_ _"]]:
    """Uniform in [-1, 1], of all shapes from one draw: one generator to compile instead of many."""
    ends = list(itertools.accumulate(rows * columns for rows, columns in shapes))
    flat = jax.random.uniform(key, (ends[-1],), minval=-1.0, maxval=1.0)
    pieces = jnp.split(flat, ends[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
