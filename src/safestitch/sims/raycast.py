"""Pictures of simple solids by casting rays, in NumPy alone: no GPU, no display, no OpenGL.

One distant lamp, Lambert shading, hard shadows on the floor, a chequered floor that shows motion.
Each solid is tried only in the rectangle of the picture that its surrounding box can cover.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from safestitch.sims.shapes import Kind, Numbers, Shape, column, dot

LAMP = np.array([0.35, -0.45, 0.82]) / np.linalg.norm([0.35, -0.45, 0.82])  # towards the lamp
AMBIENT = 0.45  # the rest of the light, 0.55, comes from the lamp
SHADOW = 0.72  # what a shadow leaves of the floor's light
SKY_LOW = np.array([0.90, 0.93, 0.96], np.float32)
SKY_HIGH = np.array([0.62, 0.76, 0.90], np.float32)
CHEQUER = 0.84  # a dark square's light against a bright one's
HAZE = 9.0  # camera distances at which the floor has faded into the sky
SAMPLES = 2  # rays per pixel along each side; their mean smooths the edges
NEAR = 0.02  # metres before the camera within which nothing is culled


@dataclasses.dataclass(frozen=True)
class Camera:
    """Looks at a point from a distance; angles as in MuJoCo's viewer."""

    look_at: tuple[float, float, float]
    distance: float
    azimuth: float
    """Degrees; 0 looks along x, 90 along y."""
    elevation: float
    """Degrees; -90 looks straight down."""
    field_of_view: float = 45.0
    """Degrees from the lower to the upper edge of the picture."""

    @functools.cached_property
    def axes(self) -> np.ndarray:
        """Rows: forward, right and up, as unit vectors of the world."""
        az, el = math.radians(self.azimuth), math.radians(self.elevation)
        forward = (math.cos(el) * math.cos(az), math.cos(el) * math.sin(az), math.sin(el))
        right = (math.sin(az), -math.cos(az), 0.0)
        up = (-math.sin(el) * math.cos(az), -math.sin(el) * math.sin(az), math.cos(el))
        return np.array([forward, right, up])

    @functools.cached_property
    def eye(self) -> np.ndarray:
        """Where it stands."""
        return np.asarray(self.look_at, float) - self.distance * self.axes[0]

    @property
    def slope(self) -> float:
        """Tangent of half the field of view: half a picture's height at depth 1."""
        return math.tan(math.radians(self.field_of_view) / 2)


def stepped_back(camera: Camera, strayed: float, shown: float) -> Camera:
    """A camera of an arena that keeps a robot in view.

    Args:
        camera: As it stands while the robot is where it should be.
        strayed: Metres of the robot from the middle.
        shown: Metres around the middle that the camera shows.
    """
    return dataclasses.replace(camera, distance=camera.distance * max(strayed / shown, 1.0))


@dataclasses.dataclass(frozen=True)
class Layer:
    """Opaque things that something else has drawn with the same camera."""

    rgb: np.ndarray
    """(3, h, w) in [0, 1]."""
    depth: np.ndarray
    """(h, w): metres along the camera's forward axis; inf where there is nothing."""


@dataclasses.dataclass(frozen=True)
class _Canvas:
    """The picture being made; a depth is in metres along the camera's forward axis."""

    camera: Camera
    rays: np.ndarray
    """(3, h, w): from the eye to depth 1."""
    rgb: np.ndarray
    """(3, h, w)."""
    depth: np.ndarray
    """(h, w)."""

    def covered(self, corners: np.ndarray) -> tuple[slice, slice]:
        """Rows and columns that the hull of world points (3, n) can cover."""
        height, width = self.depth.shape
        depth, right, up = self.camera.axes @ (corners - self.camera.eye[:, None])
        if depth.min() < NEAR:
            return slice(0, height), slice(0, width)
        pixels = height / 2 / self.camera.slope / depth
        return (
            _between(height / 2 - up * pixels, height),
            _between(width / 2 + right * pixels, width),
        )


def _between(positions: np.ndarray, end: int) -> slice:
    low, high = math.floor(positions.min()), math.ceil(positions.max()) + 1
    return slice(min(max(low, 0), end), min(max(high, 0), end))


def sample_size(width: int, height: int) -> tuple[int, int]:
    """Columns and rows of rays that are cast for a picture; a `Layer` must have as many."""
    return SAMPLES * width, SAMPLES * height


def draw(
    shapes: Sequence[Shape],
    camera: Camera,
    width: int,
    height: int,
    *,
    layer: Layer | None = None,
    casters: Sequence[Shape] = (),
) -> np.ndarray:
    """A picture (height, width, 3) of bytes; translucent shapes are blended, far to near.

    Args:
        shapes: What is to be seen. Planes are endless floors.
        camera: From where.
        width: In pixels.
        height: In pixels.
        layer: Further opaque things, by `sample_size`.
        casters: Unseen shapes that throw a shadow: those of the layer's things.
    """
    canvas = _blank(camera, *sample_size(width, height))
    solid = [s for s in shapes if s.kind != Kind.PLANE and s.rgba[3] >= 1]
    for floor in shapes:
        if floor.kind == Kind.PLANE:
            _lay(canvas, floor)
            _shade(canvas, floor, (*solid, *casters))
    for opaque in solid:
        _paint(canvas, opaque)
    if layer is not None:
        nearer = layer.depth < canvas.depth
        np.copyto(canvas.rgb, layer.rgb, where=nearer)
        np.copyto(canvas.depth, layer.depth, where=nearer)
    translucent = [s for s in shapes if s.kind != Kind.PLANE and 0 < s.rgba[3] < 1]
    for glass in sorted(translucent, key=lambda s: -camera.axes[0] @ s.position):
        _paint(canvas, glass)
    return _to_bytes(canvas.rgb)


def _to_bytes(rgb: np.ndarray) -> np.ndarray:
    """The mean over the rays of each pixel."""
    total = sum(rgb[:, i::SAMPLES, j::SAMPLES] for i in range(SAMPLES) for j in range(SAMPLES))
    pixels = np.clip(total, 0, SAMPLES**2) * (255 / SAMPLES**2) + 0.5
    return np.ascontiguousarray(np.moveaxis(pixels.astype(np.uint8), 0, 2))


def _blank(camera: Camera, width: int, height: int) -> _Canvas:
    """Nothing but sky."""
    angles = (camera.azimuth, camera.elevation, camera.field_of_view)
    rays, sky = _rays_and_sky(Camera((0.0, 0.0, 0.0), 1.0, *angles), width, height)
    return _Canvas(camera, rays, sky.copy(), np.full((height, width), np.inf, np.float32))


@functools.lru_cache(maxsize=8)  # a camera that only moves along keeps its directions
def _rays_and_sky(camera: Camera, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    forward, right, up = camera.axes.astype(np.float32)[:, :, None, None]
    x = (np.arange(width, dtype=np.float32) + 0.5 - width / 2) * (2 * camera.slope / height)
    y = (height / 2 - np.arange(height, dtype=np.float32) - 0.5) * (2 * camera.slope / height)
    rays = (forward + y[:, None] * up) + x * right
    return rays, column(SKY_LOW) + np.clip(rays[2], 0, 1) * column(SKY_HIGH - SKY_LOW)


def _lay(canvas: _Canvas, floor: Shape) -> None:
    """Draw a floor of one-metre squares, dark where x and y are floored to an odd sum."""
    origin, rays = _seen_from(floor, canvas.camera.eye, canvas.rays)
    met = floor.meet(origin, rays)
    seen = met < canvas.depth
    depth = np.where(seen, met, 0)
    x, y = (np.floor(origin[i] + depth * rays[i]).astype(np.int32) for i in (0, 1))
    tone = np.where((x + y) & 1, np.float32(CHEQUER), np.float32(1))
    haze = np.minimum(depth / np.float32(HAZE * canvas.camera.distance), 1) ** 2
    light = _light(LAMP @ floor.rotation[:, 2])
    for channel, own, sky in zip(canvas.rgb, floor.rgba, SKY_LOW, strict=False):
        colour = tone * np.float32(own * light)
        np.copyto(channel, colour + haze * (sky - colour), where=seen)
    np.copyto(canvas.depth, met, where=seen)


def _paint(canvas: _Canvas, shape: Shape) -> None:
    """Draw a shape where nothing drawn so far is nearer; translucent ones leave the depth alone."""
    rows, columns = canvas.covered(shape.corners)
    depth, rgb = canvas.depth[rows, columns], canvas.rgb[:, rows, columns]
    origin, rays = _seen_from(shape, canvas.camera.eye, canvas.rays[:, rows, columns])
    met = shape.meet(origin, rays)
    seen = met < depth
    if not seen.any():
        return
    points = column(origin) + np.where(seen, met, 1) * rays
    light = _light(dot((LAMP @ shape.rotation).astype(np.float32), shape.normals(points)))
    colour = column(shape.rgba[:3]) * light
    if shape.rgba[3] < 1:
        colour = rgb + np.float32(shape.rgba[3]) * (colour - rgb)
    else:
        np.copyto(depth, met, where=seen)
    np.copyto(rgb, colour, where=seen)


def _seen_from(shape: Shape, eye: np.ndarray, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A point and directions (3, ...) of the world in the frame of a shape."""
    origin = ((eye - shape.position) @ shape.rotation).astype(np.float32)
    if np.array_equal(shape.rotation, np.eye(3)):
        return origin, rays
    return origin, np.stack([dot(axis, rays) for axis in shape.rotation.T.astype(np.float32)])


def _light(cosine: Numbers) -> Numbers:
    return AMBIENT + (1 - AMBIENT) * np.maximum(cosine, 0)


def _shade(canvas: _Canvas, floor: Shape, casters: Sequence[Shape]) -> None:
    """Darken a floor, once, where any caster blocks the way to the lamp."""
    up = floor.rotation[:, 2]
    dark = np.zeros(canvas.depth.shape, bool)
    for caster in casters:
        corners = caster.corners
        heights = up @ (corners - floor.position[:, None])
        rows, columns = canvas.covered(corners - np.outer(LAMP, heights / (LAMP @ up)))
        depth = canvas.depth[rows, columns]
        ground = np.isfinite(depth)
        from_eye = np.where(ground, depth, 0) * canvas.rays[:, rows, columns]
        eye, spots = _seen_from(caster, canvas.camera.eye, from_eye)
        lamp = (LAMP @ caster.rotation).astype(np.float32)
        dark[rows, columns] |= ground & np.isfinite(caster.meet(column(eye) + spots, lamp))
    np.multiply(canvas.rgb, np.float32(SHADOW), out=canvas.rgb, where=dark)
