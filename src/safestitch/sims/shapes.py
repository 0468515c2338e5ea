"""Simple solids and where rays meet them, each in its own frame: its axes are x, y, z.

Rays are `origin + t * direction`. Arrays of points and directions are (3, ...): coordinates come
first, so that each is one block of memory. What is missed is met at t = inf.
"""

import dataclasses
import enum
from collections.abc import Callable

import numpy as np

Numbers = np.ndarray | np.floating
"""One number for all rays, or one for each."""

PARALLEL = 1e-9  # a smaller component of a direction counts as this much, which divides safely
EDGE = 1e-4  # share of a cylinder's length within which a point lies on its end


class Kind(enum.IntEnum):
    """Numbered as MuJoCo numbers its geoms."""

    PLANE = 0
    HEIGHT_FIELD = 1
    SPHERE = 2
    CAPSULE = 3
    ELLIPSOID = 4
    CYLINDER = 5
    BOX = 6
    MESH = 7


@dataclasses.dataclass(frozen=True)
class Shape:
    """A coloured solid somewhere in the world."""

    kind: Kind
    size: np.ndarray
    """As in MuJoCo: (radius), (radius, half length along z) or half lengths, padded to three."""
    position: np.ndarray
    rotation: np.ndarray
    """The columns are the solid's axes in the world."""
    rgba: np.ndarray
    """Each in [0, 1]."""

    @property
    def half_extent(self) -> np.ndarray:
        """Half lengths of the box around the solid, in its own frame."""
        a, b, c = self.size
        extents = {
            Kind.SPHERE: (a, a, a),
            Kind.CAPSULE: (a, a, a + b),
            Kind.CYLINDER: (a, a, b),
        }
        return np.array(extents.get(self.kind, (a, b, c)), np.float32)

    @property
    def corners(self) -> np.ndarray:
        """The eight corners (3, 8) of the box around the solid, in the world."""
        return self.position[:, None] + self.rotation @ (_SIGNS * self.half_extent[:, None])

    def meet(self, origin: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """The t at which each ray of the solid's own frame enters it: 0 if inside, inf if never."""
        return _MEETINGS[self.kind](origin, direction, self.half_extent)

    def normals(self, points: np.ndarray) -> np.ndarray:
        """Outward unit vectors at points (3, h, w) of the surface, in the solid's own frame."""
        return _NORMALS[self.kind](points, self.half_extent)


_SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]).T


def shape(kind: Kind, size, position, *, rotation=None, rgba=(0.5, 0.5, 0.5, 1.0)) -> Shape:
    """A shape from plain numbers; unturned unless told."""
    padded = np.zeros(3)
    padded[: len(size)] = size
    turned = np.eye(3) if rotation is None else np.asarray(rotation, float).reshape(3, 3)
    return Shape(Kind(kind), padded, np.asarray(position, float), turned, np.asarray(rgba, float))


# --- where a ray enters ------------------------------------------------------------------------


def _ahead(enter: Numbers, leave: Numbers) -> np.ndarray:
    """Entry where there is one and it lies ahead; 0 for a ray that begins inside."""
    return np.where((enter <= leave) & (leave > 0), np.maximum(enter, 0), np.inf)


def _nonzero(component: Numbers) -> Numbers:
    return np.where(np.abs(component) < PARALLEL, PARALLEL, component)


def _roots(a: Numbers, half_b: Numbers, c: Numbers) -> tuple[Numbers, Numbers]:
    """Both solutions of a t^2 + 2 half_b t + c = 0; (inf, -inf) where there is none."""
    inside = half_b * half_b - a * c
    real = inside >= 0
    root = np.sqrt(np.where(real, inside, 0))
    near = np.where(real, (-half_b - root) / a, np.inf)
    return near, np.where(real, (root - half_b) / a, -np.inf)


def column(vector: np.ndarray) -> np.ndarray:
    """A vector to be added to or multiplied with each of (3, h, w)."""
    return vector.astype(np.float32).reshape(3, 1, 1)


def dot(a: np.ndarray, b: np.ndarray) -> Numbers:
    """Sum over the first axis; not by matmul, whose threads cost more than they bring here."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _dot_xy(a: np.ndarray, b: np.ndarray) -> Numbers:
    return a[0] * b[0] + a[1] * b[1]


def _slab(origin: Numbers, direction: Numbers, half: Numbers) -> tuple[Numbers, Numbers]:
    """Entry into and exit from |coordinate| <= half."""
    inverse = 1.0 / _nonzero(direction)
    middle, reach = -origin * inverse, half * np.abs(inverse)
    return middle - reach, middle + reach


def _meet_plane(origin: np.ndarray, direction: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Endless, and seen from above only."""
    falls = direction[2] < -PARALLEL
    t = origin[2] / np.where(falls, -direction[2], 1.0)
    return np.where(falls & (t > 0), t, np.inf)


def _meet_ellipsoid(origin: np.ndarray, direction: np.ndarray, half: np.ndarray) -> np.ndarray:
    o, d = (
        v / half.reshape(3, *[1] * (v.ndim - 1)) for v in (origin, direction)
    )  # where it is the unit sphere
    return _ahead(*_roots(dot(d, d), dot(o, d), dot(o, o) - 1.0))


def _meet_box(origin: np.ndarray, direction: np.ndarray, half: np.ndarray) -> np.ndarray:
    enter, leave = _slab(origin[0], direction[0], half[0])
    for axis in (1, 2):
        near, far = _slab(origin[axis], direction[axis], half[axis])
        enter, leave = np.maximum(enter, near), np.minimum(leave, far)
    return _ahead(enter, leave)


def _endless_cylinder(
    origin: np.ndarray, direction: np.ndarray, radius: Numbers
) -> tuple[Numbers, Numbers]:
    a = np.maximum(_dot_xy(direction, direction), PARALLEL**2)
    return _roots(a, _dot_xy(origin, direction), _dot_xy(origin, origin) - radius**2)


def _pipe(
    origin: np.ndarray, direction: np.ndarray, radius: Numbers, half_length: Numbers
) -> tuple[Numbers, Numbers]:
    """Entry into and exit from a cylinder; entry comes after exit for those that miss."""
    enter, leave = _endless_cylinder(origin, direction, radius)
    near, far = _slab(origin[2], direction[2], half_length)
    return np.maximum(enter, near), np.minimum(leave, far)


def _meet_cylinder(origin: np.ndarray, direction: np.ndarray, half: np.ndarray) -> np.ndarray:
    return _ahead(*_pipe(origin, direction, half[0], half[2]))


def _meet_capsule(origin: np.ndarray, direction: np.ndarray, half: np.ndarray) -> np.ndarray:
    """A cylinder and a ball at either end: in at the first entry, out at the last exit."""
    radius, straight = half[0], half[2] - half[0]
    enter, leave = _pipe(origin, direction, radius, straight)
    through = enter <= leave
    enter, leave = np.where(through, enter, np.inf), np.where(through, leave, -np.inf)
    a = dot(direction, direction)
    half_b, c = _dot_xy(origin, direction), _dot_xy(origin, origin) - radius**2
    for end in (-straight, straight):
        rise = origin[2] - end
        near, far = _roots(a, half_b + rise * direction[2], c + rise * rise)
        enter, leave = np.minimum(enter, near), np.maximum(leave, far)
    return _ahead(enter, leave)


_MEETINGS: dict[Kind, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    Kind.PLANE: _meet_plane,
    Kind.SPHERE: _meet_ellipsoid,
    Kind.ELLIPSOID: _meet_ellipsoid,
    Kind.CAPSULE: _meet_capsule,
    Kind.CYLINDER: _meet_cylinder,
    Kind.BOX: _meet_box,
}

# --- which way the surface faces ---------------------------------------------------------------


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.sqrt(dot(vectors, vectors))


def _normals_plane(points: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.zeros_like(points) + _UP


def _normals_ellipsoid(points: np.ndarray, half: np.ndarray) -> np.ndarray:
    return _unit(points / column(half**2))


def _normals_capsule(points: np.ndarray, half: np.ndarray) -> np.ndarray:
    straight = half[2] - half[0]
    return _unit(points - _UP * np.clip(points[2], -straight, straight))


def _normals_cylinder(points: np.ndarray, half: np.ndarray) -> np.ndarray:
    on_an_end = np.abs(points[2]) > half[2] * (1 - EDGE)
    return _unit(np.where(on_an_end, points * _UP, points * (1 - _UP)))


def _normals_box(points: np.ndarray, half: np.ndarray) -> np.ndarray:
    relative = points / column(half)
    face = np.argmax(np.abs(relative), axis=0)
    return np.where(face == np.arange(3).reshape(3, 1, 1), np.sign(relative), 0)


_UP = column(np.array([0, 0, 1]))
_NORMALS: dict[Kind, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    Kind.PLANE: _normals_plane,
    Kind.SPHERE: _normals_ellipsoid,
    Kind.ELLIPSOID: _normals_ellipsoid,
    Kind.CAPSULE: _normals_capsule,
    Kind.CYLINDER: _normals_cylinder,
    Kind.BOX: _normals_box,
}
