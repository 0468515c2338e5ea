"""The ray caster against numbers worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safestitch.sims import raycast
from safestitch.sims.raycast import LAMP, SHADOW, Camera, Layer, draw, sample_size
from safestitch.sims.shapes import Kind, shape

RED, BLUE, WHITE, BLACK = (1, 0, 0, 1), (0, 0, 1, 1), (1, 1, 1, 1), (0, 0, 0, 1)
ALONG_X = Camera((0.0, 0.0, 0.0), distance=10.0, azimuth=0.0, elevation=0.0)
DOWN = Camera((0.5, 0.5, 0.0), distance=10.0, azimuth=90.0, elevation=-90.0)  # x right, y up
FACING = 0.45 * 255  # of a surface that the lamp does not reach


def covered(picture, camera=ALONG_X):
    """Pixels covered by black things, parts of pixels counted as parts."""
    height, width, _ = picture.shape
    sky = draw([], camera, width, height).astype(float)
    return (1 - picture / sky).mean(axis=2).sum()


def pixels_per_metre(camera, height):
    return height / 2 / math.tan(math.radians(camera.field_of_view / 2)) / camera.distance


# --- where rays meet solids --------------------------------------------------------------------

SOLIDS = {
    "sphere": (Kind.SPHERE, (1.0,)),
    "ellipsoid": (Kind.ELLIPSOID, (2.0, 1.0, 0.5)),
    "capsule": (Kind.CAPSULE, (0.5, 1.0)),
    "cylinder": (Kind.CYLINDER, (0.5, 1.0)),
    "box": (Kind.BOX, (1.0, 2.0, 3.0)),
}


def solid(name, **options):
    kind, size = SOLIDS[name]
    return shape(kind, size, options.pop("position", (0, 0, 0)), **options)


def meet(thing, origin, direction):
    rays = np.array(direction, np.float32).reshape(3, 1, 1)
    return float(thing.meet(np.array(origin, np.float32), rays).item())


@pytest.mark.parametrize(
    ("name", "from_x", "from_y", "from_z"),
    [
        ("sphere", 9, 9, 9),
        ("ellipsoid", 8, 9, 9.5),
        ("capsule", 9.5, 9.5, 8.5),
        ("cylinder", 9.5, 9.5, 9),
        ("box", 9, 8, 7),
    ],
)
def test_rays_along_the_axes(name, from_x, from_y, from_z):
    thing = solid(name)
    assert meet(thing, (-10, 0, 0), (1, 0, 0)) == pytest.approx(from_x, abs=1e-4)
    assert meet(thing, (0, 10, 0), (0, -1, 0)) == pytest.approx(from_y, abs=1e-4)
    assert meet(thing, (0, 0, 10), (0, 0, -1)) == pytest.approx(from_z, abs=1e-4)
    assert meet(thing, (0, 0, 10), (0, 0, 1)) == math.inf, "behind"
    assert meet(thing, (0, 9, 10), (0, 0, -1)) == math.inf, "beside"
    assert meet(thing, (0.1, 0.1, 0.1), (1, 0, 0)) == 0, "inside"


def test_a_capsule_is_round_at_its_ends_and_a_cylinder_is_not():
    # 0.3 beside the axis the ball of radius 0.5 around z = 1 is 0.4 high.
    assert meet(solid("capsule"), (0.3, 0, 10), (0, 0, -1)) == pytest.approx(8.6, abs=1e-4)
    assert meet(solid("cylinder"), (0.3, 0, 10), (0, 0, -1)) == pytest.approx(9, abs=1e-4)
    assert meet(solid("capsule"), (-10, 0, 1.3), (1, 0, 0)) == pytest.approx(9.6, abs=1e-4)
    assert meet(solid("cylinder"), (-10, 0, 1.3), (1, 0, 0)) == math.inf


def test_a_plane_is_endless_and_seen_from_above_only():
    floor = shape(Kind.PLANE, (1, 1), (0, 0, 0))
    assert meet(floor, (500, -300, 2), (0, 0, -1)) == 2
    assert meet(floor, (0, 0, 2), (1, 0, 0)) == math.inf
    assert meet(floor, (0, 0, -2), (0, 0, 1)) == math.inf


def inside(name, points):
    """Which points (n, 3) lie in a solid, by its definition."""
    x, y, z = points.T
    if name == "capsule":
        rest = np.maximum(np.abs(z) - 1, 0)
        return np.hypot(np.hypot(x, y), rest) < 0.5
    if name == "cylinder":
        return (np.hypot(x, y) < 0.5) & (np.abs(z) < 1)
    if name == "box":
        return (np.abs(points) < (1, 2, 3)).all(axis=1)
    radii = {"sphere": (1, 1, 1), "ellipsoid": (2, 1, 0.5)}[name]
    return ((points / radii) ** 2).sum(axis=1) < 1


place = st.tuples(*[st.floats(-4, 4)] * 3)


@given(name=st.sampled_from(sorted(SOLIDS)), origin=place, aim=place)
def test_a_ray_enters_where_its_points_become_inside(name, origin, aim):
    direction = np.subtract(aim, origin)
    if np.linalg.norm(direction) < 0.1:
        return
    direction = direction / np.linalg.norm(direction)
    steps = np.linspace(0, 16, 4001)
    within = inside(name, np.add(origin, steps[:, None] * direction))
    met = meet(solid(name), origin, direction)
    if within.any():
        assert met == pytest.approx(steps[within.argmax()], abs=0.01)
    elif met < math.inf:  # it only grazes, between two of the points
        nearest = np.add(origin, met * direction)
        assert inside(name, (nearest * 0.99)[None]).all()


@given(name=st.sampled_from(sorted(SOLIDS)), origin=place)
def test_normals_are_unit_vectors_that_point_out(name, origin):
    if np.linalg.norm(origin) < 0.1 or inside(name, np.array([origin]))[0]:
        return
    thing = solid(name)
    direction = -np.array(origin) / np.linalg.norm(origin)
    point = np.add(origin, meet(thing, origin, direction) * direction)
    normal = thing.normals(point.reshape(3, 1, 1).astype(np.float32)).reshape(3)
    assert np.linalg.norm(normal) == pytest.approx(1, abs=1e-4)
    assert normal @ direction < 0
    if min(np.abs(np.abs(point) - thing.half_extent)) > 0.02:  # an edge has two normals
        assert not inside(name, (point + 0.01 * normal)[None])[0]
        assert inside(name, (point - 0.01 * normal)[None])[0]


# --- the camera --------------------------------------------------------------------------------


def test_angles_are_those_of_mujoco():
    along_y = Camera((1.0, 2.0, 3.0), distance=5.0, azimuth=90.0, elevation=0.0)
    np.testing.assert_allclose(along_y.axes, [[0, 1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-12)
    np.testing.assert_allclose(along_y.eye, [1, -3, 3])
    np.testing.assert_allclose(DOWN.axes, [[0, 0, -1], [1, 0, 0], [0, 1, 0]], atol=1e-12)


@given(st.floats(-360, 360), st.floats(-90, 90))
def test_axes_are_orthonormal_and_right_handed(azimuth, elevation):
    forward, right, up = Camera((0.0, 0.0, 0.0), 1.0, azimuth, elevation).axes
    np.testing.assert_allclose(np.cross(right, forward), up, atol=1e-9)
    assert np.linalg.norm(forward) == pytest.approx(1)
    assert forward @ right == pytest.approx(0, abs=1e-9)


# --- pictures ----------------------------------------------------------------------------------


def test_a_sphere_covers_the_disc_it_should():
    # A cone that touches it: radius in pixels = 100 (1 / sqrt(10^2 - 1)) / tan(22.5 deg) = 24.26.
    picture = draw([solid("sphere", rgba=BLACK)], ALONG_X, 200, 200)
    assert covered(picture) == pytest.approx(math.pi * 24.264**2, rel=0.01)
    rows, columns = np.nonzero((picture < 20).all(axis=2))
    assert (rows.mean(), columns.mean()) == pytest.approx((99.5, 99.5), abs=0.1)


def test_a_box_covers_the_square_it_should():
    # Its front, 2 m wide and high, is 9 m away: 100 * 2 / 9 / tan(22.5 deg) = 53.65 pixels.
    front = shape(Kind.BOX, (1, 1, 1), (0, 0, 0), rgba=BLACK)
    area = covered(draw([front], ALONG_X, 240, 200))
    assert math.sqrt(area) == pytest.approx(53.65, abs=0.5)  # rays are half a pixel apart


def test_up_is_up_and_right_is_right():
    ball = shape(Kind.SPHERE, (0.2,), (0, -1, 2), rgba=BLACK)  # looking along x, -y is right
    rows, columns = np.nonzero((draw([ball], ALONG_X, 200, 200) < 20).all(axis=2))
    scale = pixels_per_metre(ALONG_X, 200)
    assert (rows.mean(), columns.mean()) == pytest.approx((99.5 - 2 * scale, 99.5 + scale), abs=0.2)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_nearer_hides_the_farther(reverse):
    near = shape(Kind.SPHERE, (0.5,), (-2, 0, 0), rgba=RED)
    far = shape(Kind.BOX, (0.5, 2, 2), (2, 0, 0), rgba=BLUE)
    things = [far, near] if reverse else [near, far]
    picture = draw(things, ALONG_X, 101, 101)
    red, _, blue = picture[50, 50]
    assert red > 80 and blue == 0
    red, _, blue = picture[50, 66]
    assert red == 0 and blue == pytest.approx(FACING, abs=1)


@pytest.mark.parametrize(
    ("azimuth", "elevation", "cosine"),
    [(0, 0, 0.0), (90, 0, 0.45 / 0.9987), (180, 0, 0.35 / 0.9987), (90, -90, 0.82 / 0.9987)],
    ids=["dark side", "front", "side", "top"],
)
def test_a_face_is_lit_by_the_angle_to_the_lamp(azimuth, elevation, cosine):
    camera = Camera((0.0, 0.0, 0.0), 10.0, float(azimuth), float(elevation))
    picture = draw([shape(Kind.BOX, (1, 1, 1), (0, 0, 0), rgba=WHITE)], camera, 51, 51)
    expected = 255 * (0.45 + 0.55 * cosine)
    np.testing.assert_allclose(picture[25, 25], expected, atol=1)
    np.testing.assert_array_equal(picture[20:31, 20:31], np.tile(picture[25, 25], (11, 11, 1)))


def test_a_turned_shape_is_turned():
    quarter = ((0, 0, 1), (0, 1, 0), (-1, 0, 0))  # about y: the capsule's z axis lies along x
    lying = shape(Kind.CAPSULE, (0.3, 2), (0, 0, 0), rotation=quarter, rgba=BLACK)
    from_above = Camera((0.0, 0.0, 0.0), 10.0, azimuth=90.0, elevation=-90.0)
    rows, columns = np.nonzero((draw([lying], from_above, 200, 200) < 20).all(axis=2))
    scale = pixels_per_metre(from_above, 200)
    assert np.ptp(columns) == pytest.approx(2 * 2.3 * scale, abs=3)
    assert np.ptp(rows) == pytest.approx(2 * 0.3 * scale, abs=3)


def test_squares_of_the_floor_are_one_metre():
    size = 400
    picture = draw([shape(Kind.PLANE, (), (0, 0, 0), rgba=WHITE)], DOWN, size, size).astype(int)
    scale = pixels_per_metre(DOWN, size)

    def at(x, y):
        return picture[round(size / 2 - (y - 0.5) * scale), round(size / 2 + (x - 0.5) * scale), 0]

    bright, dark = at(0.5, 0.5), at(1.5, 0.5)
    # 255 (0.45 + 0.55 * 0.82107) = 229.9, times 0.84 if dark; 1/81 of the way to the sky's 229.5
    assert (bright, dark) == pytest.approx((229.9, 193.1 + (229.5 - 193.1) / 81), abs=1)
    for x in range(-2, 4):
        for y in range(-2, 4):
            assert at(x + 0.5, y + 0.5) == (dark if (x + y) % 2 else bright)
    row = picture[size // 2, :, 0]
    edges = np.flatnonzero(np.abs(np.diff(row)) > 10) + 1
    first = size / 2 + 0.5 * scale  # where x = 1
    assert np.abs(edges - first).min() <= 1


def test_what_is_translucent_is_blended():
    pane = shape(Kind.BOX, (0.1, 2, 2), (-2, 0, 0), rgba=(1, 0, 0, 0.5))
    wall = shape(Kind.BOX, (0.5, 2, 2), (2, 0, 0), rgba=BLUE)
    half = FACING / 2
    np.testing.assert_allclose(draw([pane, wall], ALONG_X, 51, 51)[25, 25], (half, 0, half), atol=1)
    behind = shape(Kind.BOX, (0.1, 2, 2), (4, 0, 0), rgba=(1, 0, 0, 0.5))
    picture = draw([behind, wall], ALONG_X, 51, 51)
    np.testing.assert_allclose(picture[25, 25], (0, 0, FACING), atol=1)


def test_panes_are_blended_from_far_to_near():
    near = shape(Kind.BOX, (0.1, 2, 2), (-2, 0, 0), rgba=(1, 0, 0, 0.5))
    far = shape(Kind.BOX, (0.1, 2, 2), (0, 0, 0), rgba=(0, 1, 0, 0.5))
    wall = shape(Kind.BOX, (0.5, 2, 2), (2, 0, 0), rgba=BLUE)
    expected = FACING * np.array([0.5, 0.25, 0.25])
    for things in ([near, far, wall], [wall, far, near]):
        np.testing.assert_allclose(draw(things, ALONG_X, 51, 51)[25, 25], expected, atol=1)


def test_nothing_is_seen_of_what_is_wholly_transparent():
    ghost = solid("box", rgba=(1, 0, 0, 0))
    np.testing.assert_array_equal(draw([ghost], ALONG_X, 40, 30), draw([], ALONG_X, 40, 30))


def test_a_shadow_falls_away_from_the_lamp():
    floor = shape(Kind.PLANE, (), (0, 0, 0), rgba=WHITE)
    ball = shape(Kind.SPHERE, (0.2,), (0.5, 0.5, 1.5), rgba=RED)
    size, scale = 400, pixels_per_metre(DOWN, 400)
    with_ball, without = (draw(things, DOWN, size, size) for things in ([floor, ball], [floor]))
    fall = -1.5 * LAMP[:2] / LAMP[2]  # of the ball's middle, from right above (0.5, 0.5)
    row, column = round(size / 2 - fall[1] * scale), round(size / 2 + fall[0] * scale)
    np.testing.assert_allclose(
        with_ball[row, column], SHADOW * without[row, column].astype(float), atol=1
    )
    opposite = round(size / 2 + fall[1] * scale), round(size / 2 - fall[0] * scale)
    np.testing.assert_array_equal(with_ball[opposite], without[opposite])


def test_overlapping_shadows_are_not_darker():
    floor = shape(Kind.PLANE, (), (0, 0, 0), rgba=WHITE)
    caster = shape(Kind.SPHERE, (0.5,), (0.5, 0.5, 0.4))  # sunk into the floor, as wheels are
    once = draw([floor], DOWN, 80, 80, casters=[caster])
    np.testing.assert_array_equal(draw([floor], DOWN, 80, 80, casters=[caster, caster]), once)
    clear = draw([floor], DOWN, 80, 80)
    assert once[40, 40, 0] == pytest.approx(SHADOW * clear[40, 40, 0], abs=1)


def test_a_layer_is_seen_where_it_is_nearest():
    columns, rows = sample_size(40, 30)
    depth = np.full((rows, columns), np.inf)
    depth[:, : columns // 2] = 7.0
    rgb = np.zeros((3, rows, columns), np.float32)
    rgb[1] = 1.0
    layer = Layer(rgb, depth)
    wall = shape(Kind.BOX, (0.5, 9, 9), (2, 0, 0), rgba=BLUE)  # its front is 11.5 m away
    picture = draw([wall], ALONG_X, 40, 30, layer=layer)
    np.testing.assert_array_equal(picture[15, 5], (0, 255, 0))
    np.testing.assert_allclose(picture[15, 35], (0, 0, FACING), atol=1)
    before = shape(Kind.BOX, (0.5, 9, 9), (-5, 0, 0), rgba=BLUE)  # 4.5 m away
    hidden = draw([before], ALONG_X, 40, 30, layer=layer)
    np.testing.assert_allclose(hidden[15, 5], (0, 0, FACING), atol=1)


shapes = st.builds(
    lambda name, position, turn, opacity: solid(
        name,
        position=position,
        rotation=[
            [math.cos(turn), 0, math.sin(turn)],
            [0, 1, 0],
            [-math.sin(turn), 0, math.cos(turn)],
        ],
        rgba=(0.3, 0.6, 0.9, opacity),
    ),
    st.sampled_from(sorted(SOLIDS)),
    st.tuples(st.floats(-6, 12), st.floats(-6, 6), st.floats(-6, 6)),
    st.floats(-3, 3),
    st.sampled_from([0.4, 1.0]),
)


@given(st.lists(shapes, min_size=1, max_size=3))
def test_trying_every_ray_gives_the_same_picture(things):
    """What is culled would not have been seen, even where shapes reach behind the camera."""
    camera = Camera((0.0, 0.0, 1.0), distance=8.0, azimuth=20.0, elevation=-25.0)
    scene = [shape(Kind.PLANE, (), (0, 0, -2), rgba=WHITE), *things]
    picture = draw(scene, camera, 24, 18)
    with pytest.MonkeyPatch.context() as patch:
        everything = slice(0, 36), slice(0, 48)
        patch.setattr(raycast._Canvas, "covered", lambda *_: everything)
        np.testing.assert_array_equal(draw(scene, camera, 24, 18), picture)


def test_the_same_scene_gives_the_same_bytes():
    scene = [shape(Kind.PLANE, (), (0, 0, -1)), *map(solid, SOLIDS)]
    first, second = (draw(scene, ALONG_X, 60, 40) for _ in range(2))
    assert (first.shape, first.dtype) == ((40, 60, 3), np.uint8)
    assert first.tobytes() == second.tobytes()
