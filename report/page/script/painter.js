// Columns of pixels in few colours, faster than a rectangle for each.

class ColumnPainter {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.context = this.canvas.getContext("2d");
  }

  /** Starts an empty picture. */
  begin(width, height) {
    this.width = Math.max(1, Math.ceil(width));
    this.height = Math.max(1, Math.round(height));
    this.image = new ImageData(this.width, this.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** Fills the pixels of a column from `top` to before `bottom`. */
  fill(x, top, bottom, colour) {
    const { pixels, width } = this;
    for (let y = Math.max(0, top); y < bottom; y++) {
      pixels[y * width + x] = colour;
    }
  }

  /** Puts the picture on a canvas. */
  end(context, left, top) {
    this.canvas.width = this.width;
    this.canvas.height = this.height;
    this.context.putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.canvas, left, top, this.width, this.height);
  }
}

const PAINTER = new ColumnPainter();

/** A colour of CSS, `rgb(…)`, as the pixels of a picture have it. */
function pixelColour(css) {
  const [red, green, blue] = css.match(/[\d.]+/g).map(Number);
  const bytes = Uint8Array.of(red, green, blue, 255);
  return new Uint32Array(bytes.buffer)[0];
}
