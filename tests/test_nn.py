"""EmbeddedMLP against the network it stands for: embed, concatenate, linear layers with ReLU."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safestitch.nn import MLP, EmbeddedMLP

IN_SIZES, OUT, EMBEDDING, HIDDEN = (3, 1, 2), 2, 4, 5
KEY = jax.random.key(0)


def network(layers: int = 3, seed: int = 0) -> EmbeddedMLP:
    """Every parameter random, shifts and biases included: at init these are zero."""
    sizes = {"embedding": EMBEDDING, "hidden": HIDDEN, "layers": layers}
    blank = jax.eval_shape(lambda key: EmbeddedMLP(IN_SIZES, OUT, **sizes, key=key), KEY)
    leaves, form = jax.tree.flatten(blank)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(
        form, [jnp.asarray(rng.normal(size=leaf.shape), jnp.float32) for leaf in leaves]
    )


def inputs(rows: int = 7) -> list[jax.Array]:
    rng = np.random.default_rng(1)
    return [jnp.asarray(rng.normal(size=(rows, i)), jnp.float32) for i in IN_SIZES]


def naive(net: EmbeddedMLP, *columns: jax.Array) -> jax.Array:
    """The unfused form, one sample a row."""

    def add(x, bias):
        return x + jnp.broadcast_to(bias, x.shape)

    embedded = [
        add(x @ e.T, shift) for x, e, shift in zip(columns, net.embeddings, net.shifts, strict=True)
    ]
    x = jnp.concatenate(embedded, axis=1)
    last = len(net.weights) - 1
    for i, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        x = add(x @ weight.T, bias)
        if i < last:
            x = jnp.maximum(x, 0.0)
    return x


@jax.jit
def compare(net: EmbeddedMLP, columns: list[jax.Array]):
    """Value, and gradient of a loss in parameters and inputs, of the fused and the naive form."""

    def loss(form, net, columns):
        value = form(net, *columns)
        return jnp.mean((value - jnp.ones_like(value)) ** 2), value

    return [
        jax.grad(functools.partial(loss, form), argnums=(0, 1), has_aux=True)(net, columns)
        for form in (EmbeddedMLP.__call__, naive)
    ]


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_fused_equals_unfused_in_value_and_in_every_gradient(layers):
    with jax.enable_x64(True):  # the two are one function: in float64 they agree to rounding
        double = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), (network(layers), inputs()))
        (gradients, value), (unfused, expected) = compare(*double)
        np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-10)
    paths = jax.tree_util.tree_leaves_with_path(unfused)
    assert len(paths) == 2 * len(IN_SIZES) + 2 * layers + len(IN_SIZES)
    for (path, wanted), found in zip(paths, jax.tree.leaves(gradients), strict=True):
        name = jax.tree_util.keystr(path)
        assert np.abs(np.asarray(wanted)).max() > 0, f"{name}: the check would be empty"
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10, err_msg=name)


def test_one_layer_by_hand():
    # Embedding 1 wide: 2 x + 1 and 3 y - 1; output 5 (2 x + 1) + 7 (3 y - 1) + 0.5.
    # At x = 1, y = 2: 5 * 3 + 7 * 5 + 0.5 = 50.5.
    net = EmbeddedMLP((1, 1), 1, embedding=1, hidden=1, layers=1, key=jax.random.key(0))
    values = (
        (jnp.array([[2.0]]), jnp.array([[3.0]])),
        (jnp.array([1.0]), jnp.array([-1.0])),
        (jnp.array([[5.0, 7.0]]),),
        (jnp.array([0.5]),),
    )
    net = eqx.tree_at(lambda n: (n.embeddings, n.shifts, n.weights, n.biases), net, values)
    assert net(jnp.array([[1.0]]), jnp.array([[2.0]])).tolist() == [[50.5]]


@pytest.mark.parametrize("layers", [1, 2, 7])
def test_layers_and_shapes(layers):
    net = network(layers)
    widths = [EMBEDDING * len(IN_SIZES), *[HIDDEN] * (layers - 1), OUT]
    assert [e.shape for e in net.embeddings] == [(EMBEDDING, i) for i in IN_SIZES]
    assert [s.shape for s in net.shifts] == [(EMBEDDING,)] * len(IN_SIZES)
    assert [w.shape for w in net.weights] == list(zip(widths[1:], widths[:-1], strict=True))
    assert [b.shape for b in net.biases] == [(o,) for o in widths[1:]]
    assert jax.eval_shape(net, *inputs(4)).shape == (4, OUT)


def test_fresh_network_is_random_scaled_and_unshifted():
    sizes = {"embedding": 64, "hidden": 128, "layers": 3}
    net = jax.jit(lambda key: EmbeddedMLP((3, 1), 2, **sizes, key=key))(KEY)
    assert all((np.asarray(x) == 0).all() for x in (*net.shifts, *net.biases))
    # Variance gain / (3 inputs): 1 / inputs, then 2 / inputs (He), at the output 1 / (3 inputs).
    stds = [float(np.std(w)) * w.shape[1] ** 0.5 for w in (*net.embeddings, *net.weights)]
    assert stds == pytest.approx([1.0, 1.0, 2**0.5, 2**0.5, 3**-0.5], rel=0.15)


def test_same_key_same_network_other_key_another():
    @jax.jit
    def fresh(key):
        return EmbeddedMLP((2, 2), 1, embedding=2, hidden=3, layers=2, key=key)

    one, same, other = fresh(KEY), fresh(KEY), fresh(jax.random.key(1))
    assert all((a == b).all() for a, b in zip(one.weights, same.weights, strict=True))
    assert not any((a == b).any() for a, b in zip(one.weights, other.weights, strict=True))
    assert not (one.embeddings[0] == one.embeddings[1]).any()


def test_plain_mlp_by_hand():
    # Hidden relu(x + y, x - y) = (3, 0) of (1, 2) and (1, 3) of (2, -1); out 2 h_1 - h_2 + 0.5.
    net = MLP(2, 1, hidden=2, layers=2, key=KEY)
    values = (
        (jnp.array([[1.0, 1.0], [1.0, -1.0]]), jnp.array([[2.0, -1.0]])),
        (
            jnp.zeros(2),
            jnp.array([0.5]),
        ),
    )
    net = eqx.tree_at(lambda n: (n.weights, n.biases), net, values)
    first, second = jnp.array([[1.0], [2.0]]), jnp.array([[2.0], [-1.0]])
    assert net(first, second)[:, 0].tolist() == [6.5, -0.5]


def test_plain_mlp_begins_as_pytorch_does():
    net = MLP(100, 3, hidden=400, layers=3, key=KEY)
    for weight, inputs in zip(net.weights, (100, 400, 400), strict=True):
        assert 0.9 < float(jnp.abs(weight).max()) * inputs**0.5 <= 1.0
    assert all((bias == 0).all() for bias in net.biases)
