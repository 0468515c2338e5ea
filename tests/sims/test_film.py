"""Frames, clips and contact sheets."""

import importlib
import math
import os
import sys

import numpy as np
import pytest
from PIL import Image

from safestitch.records import SafestitchError
from safestitch.sims import film
from safestitch.sims.film import (
    FAINT,
    GAP,
    OVER,
    STRIP,
    WITHIN,
    Caption,
    contact_sheet,
    frame,
    write_gif,
    write_png,
)

WIDTH, HEIGHT = 120, 90


def picture(colour):
    return np.full((HEIGHT, WIDTH, 3), colour, np.uint8)


def bar(image, panel=0):
    """The row of pixels through the middle of a panel's bar."""
    left = panel * (WIDTH + GAP) + 4
    return [image.getpixel((x, HEIGHT + 36)) for x in range(left, left + WIDTH - 8)]


def test_a_frame_holds_its_pictures_side_by_side():
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    captions = [Caption(limit=10.0, reward=1.0, cost=0.0, step=3)] * 3
    image = frame([picture(c) for c in colours], captions)
    assert image.size == (3 * WIDTH + 2 * GAP, HEIGHT + STRIP)
    for index, colour in enumerate(colours):
        left = index * (WIDTH + GAP)
        for corner in ((left, 0), (left + WIDTH - 1, HEIGHT - 1)):
            assert image.getpixel(corner) == colour


def test_the_bar_fills_with_the_cost():
    for cost, share in ((0.0, 0), (5.0, 0.5), (10.0, 1)):
        image = frame([picture(0)], [Caption(limit=10.0, reward=0.0, cost=cost, step=0)])
        pixels = bar(image)
        assert pixels.count(WITHIN) == pytest.approx(share * len(pixels), abs=1)
        assert pixels.count(FAINT) == pytest.approx((1 - share) * len(pixels), abs=1)


@pytest.mark.parametrize(
    ("limit", "cost", "colour"),
    [
        (10.0, 10.0, WITHIN),
        (10.0, 10.5, OVER),
        (0.0, 0.0, FAINT),
        (0.0, 1.0, OVER),
        (math.inf, 500.0, FAINT),
    ],
)
def test_the_bar_is_red_above_the_limit(limit, cost, colour):
    image = frame([picture(0)], [Caption(limit=limit, reward=0.0, cost=cost, step=0)])
    pixels = bar(image)
    assert pixels == [colour] * len(pixels)


def test_each_number_changes_the_caption():
    base = {"limit": 10.0, "reward": 1.0, "cost": 2.0, "step": 3}
    changes = [{}, *({k: v + 1} for k, v in base.items()), {"title": "GAS"}, {"ended": True}]
    seen = {
        frame([picture(0)], [Caption(**{**base, **change})]).tobytes()  # type: ignore[arg-type]
        for change in changes
    }
    assert len(seen) == len(changes)


def test_a_frame_needs_equal_pictures_and_a_caption_for_each():
    caption = Caption(limit=1.0, reward=0.0, cost=0.0, step=0)
    with pytest.raises(SafestitchError, match=r"2 pictures .* 1 captions"):
        frame([picture(0), picture(0)], [caption])
    with pytest.raises(SafestitchError, match="one size"):
        frame([picture(0), picture(0)[:-1]], [caption, caption])
    with pytest.raises(SafestitchError, match="0 pictures"):
        frame([], [])


def moving_frames(count):
    frames = []
    for t in range(count):
        shown = picture(200)
        shown[20:50, t : t + 30] = (200, 30, 30)
        frames.append(frame([shown], [Caption(limit=9.0, reward=t * 1.5, cost=float(t), step=t)]))
    return frames


def test_a_clip_has_every_frame_at_its_speed(tmp_path):
    frames = moving_frames(12)
    write_gif(tmp_path / "clip.gif", frames, fps=20.0)
    with Image.open(tmp_path / "clip.gif") as clip:
        assert (clip.n_frames, clip.size) == (12, frames[0].size)  # type: ignore[attr-defined]
        assert clip.info["loop"] == 0
        for index, original in enumerate(frames):
            clip.seek(index)
            assert clip.info["duration"] == 50
            shown = np.asarray(clip.convert("RGB"), int)
            off = np.abs(shown - np.asarray(original, int))
            assert off[:HEIGHT].max() <= 12, "the palette is close to the colours"


def test_frames_that_do_not_change_are_kept(tmp_path):
    still = moving_frames(1) * 5
    write_gif(tmp_path / "clip.gif", still, fps=10.0)
    with Image.open(tmp_path / "clip.gif") as clip:
        total = 0
        for index in range(clip.n_frames):  # type: ignore[attr-defined]
            clip.seek(index)
            total += clip.info["duration"]
    assert total == 500, "Pillow may join equal frames, but the time stays"


@pytest.mark.parametrize("fps", [0.0, -1.0, 51.0, math.nan])
def test_a_clip_needs_frames_and_a_speed(tmp_path, fps):
    with pytest.raises(SafestitchError, match="fps <= 50"):
        write_gif(tmp_path / "clip.gif", moving_frames(2), fps=fps)
    with pytest.raises(SafestitchError, match="0 frames"):
        write_gif(tmp_path / "clip.gif", [], fps=20.0)
    assert not list(tmp_path.iterdir())


def test_a_clip_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "clip.gif"
    target.write_bytes(b"before")

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(SafestitchError, match="No space left"):
        write_gif(target, moving_frames(2), fps=20.0)
    assert target.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["clip.gif"]


def test_a_still_is_kept_to_the_bit(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    for name, still in (("array.png", noise), ("image.png", Image.fromarray(noise))):
        write_png(tmp_path / name, still)
        with Image.open(tmp_path / name) as read:
            np.testing.assert_array_equal(np.asarray(read), noise)


def test_a_contact_sheet_has_rows_and_names():
    named = {f"task {i}": picture((40 * i, 0, 0)) for i in range(5)}
    sheet = contact_sheet(named, columns=2)
    width, height = sheet.size
    assert width == 2 * WIDTH + GAP and height % 3 == 0
    line = height // 3
    for index in range(5):
        corner = (index % 2 * (WIDTH + GAP), index // 2 * line)
        assert sheet.getpixel(corner) == (40 * index, 0, 0)
        below = np.asarray(sheet)[
            corner[1] + HEIGHT : corner[1] + line, corner[0] : corner[0] + WIDTH
        ]
        assert below.min() < 100, "its name"
    with pytest.raises(SafestitchError, match="0 pictures"):
        contact_sheet({}, columns=2)
    with pytest.raises(SafestitchError, match="0 columns"):
        contact_sheet(named, columns=0)


def test_without_pillow_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(SafestitchError, match="pip install 'pillow"):
        importlib.reload(film)
