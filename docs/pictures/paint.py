"""Paints what `tmux capture-pane -p -e` printed: paint.py SCREEN PICTURE."""

import re
import sys

from PIL import Image, ImageDraw, ImageFont

FONTS = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono"
SIZE = 17
MARGIN = 18
BACKGROUND = "#1d2021"
TEXT = "#ebdbb2"
COLOURS = {
    "31": "#fb4934", "32": "#b8bb26", "33": "#fabd2f", "34": "#83a598",
    "35": "#d3869b", "36": "#8ec07c", "37": TEXT,
}
DIM = "#928374"
SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m")


def pieces(line):
    """The line's texts, each with its colour and whether it is bold."""
    colour, bold, at = TEXT, False, 0
    for match in SEQUENCE.finditer(line):
        yield line[at:match.start()], colour, bold
        at = match.end()
        for code in (match.group(1) or "0").split(";"):
            if code in ("", "0", "39"):
                colour = TEXT
                bold = bold and code == "39"
            elif code == "1":
                bold = True
            elif code == "2":
                colour = DIM
            else:
                colour = COLOURS.get(code, colour)
    yield line[at:], colour, bold


def main(screen, picture):
    with open(screen, encoding="utf-8") as file:
        lines = file.read().rstrip().splitlines()
    fonts = {bold: ImageFont.truetype(FONTS + ("-Bold" if bold else "") + ".ttf", SIZE) for bold in (False, True)}
    cell = fonts[False].getlength("M")
    height = SIZE + 5
    columns = max(len(SEQUENCE.sub("", line)) for line in lines)
    image = Image.new("RGB", (int(columns * cell) + 2 * MARGIN, len(lines) * height + 2 * MARGIN), BACKGROUND)
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        column = 0
        for text, colour, bold in pieces(line):
            draw.text((MARGIN + column * cell, MARGIN + row * height), text, font=fonts[bold], fill=colour)
            column += len(text)
    image.save(picture, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
