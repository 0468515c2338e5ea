"""Stills and clips of policies at work, side by side, with what they earned and cost drawn in."""

import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from safestitch.files import write_atomic
from safestitch.records import SafestitchError

try:
    from PIL import Image, ImageDraw, ImageFont
except ModuleNotFoundError:
    raise SafestitchError("pictures need Pillow: pip install 'pillow>=10.1'") from None

STRIP = 44  # pixels of caption below a picture
GAP = 4  # pixels between pictures
TEXT_SIZE = 12
PAPER, INK, FAINT = (250, 250, 250), (30, 34, 40), (205, 210, 216)
WITHIN, OVER = (46, 140, 87), (206, 44, 44)
PALETTE_FRAMES = 8  # that a clip's palette is taken from
COLOURS = 128  # of a clip's palette: small files, and no banding that the eye finds


@dataclasses.dataclass(frozen=True)
class Caption:
    """What is known of one panel at one step."""

    limit: float
    """Cost the episode may reach; inf for none."""
    reward: float
    """Sum so far."""
    cost: float
    """Sum so far."""
    step: int
    title: str = ""
    """What the panel shows, if more than its limit."""
    ended: bool = False
    """The episode is over, and the panel shows its last moment."""


def frame(pictures: Sequence[np.ndarray], captions: Sequence[Caption]) -> Image.Image:
    """Pictures (h, w, 3) of one size side by side, each above its caption."""
    shapes = {picture.shape for picture in pictures}
    if len(shapes) != 1 or len(pictures) != len(captions):
        raise SafestitchError(
            f"a frame takes pictures of one size and a caption for each: got "
            f"{len(pictures)} pictures of sizes {sorted(shapes)} and {len(captions)} captions"
        )
    ((height, width, _),) = shapes
    total = len(pictures) * (width + GAP) - GAP
    image = Image.new("RGB", (total, height + STRIP), PAPER)
    for index, (picture, caption) in enumerate(zip(pictures, captions, strict=True)):
        left = index * (width + GAP)
        image.paste(Image.fromarray(picture), (left, 0))
        _write_caption(ImageDraw.Draw(image), caption, (left, height), width)
    return image


def _write_caption(
    pen: ImageDraw.ImageDraw, caption: Caption, corner: tuple[int, int], width: int
) -> None:
    """Two lines of text, then a bar that fills with the cost and turns red above the limit."""
    left, top = corner
    over = caption.cost > caption.limit
    head = caption.title or f"limit {caption.limit:g}"
    moment = f"ended at {caption.step}" if caption.ended else f"step {caption.step}"
    font = ImageFont.load_default(TEXT_SIZE)
    for row, start, end, colour in (
        (2, head, moment, INK),
        (16, f"reward {caption.reward:.1f}", f"cost {caption.cost:g}", OVER if over else INK),
    ):
        pen.text((left + 4, top + row), start, INK, font)
        pen.text((left + width - 4, top + row), end, colour, font, anchor="ra")
    bar = (left + 4, top + 33, left + width - 5, top + 40)
    pen.rectangle(bar, fill=FAINT)
    filled = min(_share(caption.cost, caption.limit), 1.0) * (bar[2] - bar[0])
    if filled >= 1:
        pen.rectangle((bar[0], bar[1], bar[0] + round(filled), bar[3]), OVER if over else WITHIN)


def _share(cost: float, limit: float) -> float:
    """Cost against its limit; any cost overfills a limit of zero."""
    if limit > 0:
        return cost / limit
    return float(cost > 0)


def contact_sheet(named_pictures: Mapping[str, np.ndarray], columns: int) -> Image.Image:
    """Pictures of one size in rows, each above its name."""
    if not named_pictures or columns < 1:
        raise SafestitchError(
            f"a contact sheet takes at least one picture and one column: got "
            f"{len(named_pictures)} pictures in {columns} columns"
        )
    height, width = np.max([picture.shape[:2] for picture in named_pictures.values()], axis=0)
    line = TEXT_SIZE + 8
    rows = -(-len(named_pictures) // columns)
    size = (columns * (width + GAP) - GAP, rows * (height + line))
    image = Image.new("RGB", size, PAPER)
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(TEXT_SIZE)
    for index, (name, picture) in enumerate(named_pictures.items()):
        left, top = index % columns * (width + GAP), index // columns * (height + line)
        image.paste(Image.fromarray(picture), (left, top))
        pen.text((left + width // 2, top + height + 2), name, INK, font, anchor="ma")
    return image


def fitted(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    """A picture of any size, scaled to another."""
    return np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BILINEAR))


def png(picture: np.ndarray | Image.Image) -> bytes:
    """A still, as the content of a file."""
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def write_png(path: Path, picture: np.ndarray | Image.Image) -> None:
    """Write a still, whole or not at all."""
    write_atomic(path, png(picture))


def write_gif(path: Path, frames: Sequence[Image.Image], fps: float) -> None:
    """Write a clip that repeats for ever, whole or not at all.

    Args:
        path: Where to.
        frames: Of one size, at least one.
        fps: Frames per second; GIF counts in hundredths of a second, and browsers slow down what
            is faster than 50.
    """
    if not frames or not 0 < fps <= 50:
        raise SafestitchError(
            f"a clip takes at least one frame and 0 < fps <= 50: got {len(frames)} frames at "
            f"{fps:g} per second"
        )
    palette = _common_palette(frames)
    drawn = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]
    buffer = io.BytesIO()
    drawn[0].save(
        buffer,
        "GIF",
        save_all=True,
        append_images=drawn[1:],
        duration=10 * round(100 / fps),
        loop=0,
        disposal=1,
    )
    write_atomic(path, buffer.getvalue())


def _common_palette(frames: Sequence[Image.Image]) -> Image.Image:
    """One palette for the whole clip, from a few frames spread over it: nothing flickers."""
    chosen = frames[:: -(-len(frames) // PALETTE_FRAMES)]
    width, height = chosen[0].size
    together = Image.new("RGB", (width, height * len(chosen)))
    for index, image in enumerate(chosen):
        together.paste(image, (0, index * height))
    return together.quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
