// Reads the data that the page carries: base64 of raw deflate. `facts` is JSON, `columns` the
// arrays that it lists, each coded as report/src/columns.rs says.

async function inflate(id) {
  const node = document.getElementById(id);
  const packed = bytesOfBase64(node.textContent);
  // The text is not needed again, and is as large as the file.
  node.remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) {
    return Uint8Array.fromBase64(text);
  }
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at++) {
    bytes[at] = binary.charCodeAt(at);
  }
  return bytes;
}

async function readFacts() {
  return JSON.parse(new TextDecoder().decode(await inflate("facts")));
}

async function readColumns(directory) {
  return new Columns(await inflate("columns"), directory);
}

class Columns {
  constructor(bytes, directory) {
    this.bytes = bytes;
    this.entries = new Map(directory.map((entry) => [entry.name, entry]));
  }

  /** The array of that name: numbers below 2^32 as integers, others as floating point. */
  get(name) {
    const entry = this.entries.get(name);
    if (!entry) {
      throw new Error(`the data has no column ${name}`);
    }
    switch (entry.coding) {
      case "small":
        return this.#numbers(entry, new Uint32Array(entry.count));
      case "large":
        return this.#numbers(entry, new Float64Array(entry.count));
      case "ascending":
        return this.#ascending(entry, new Uint32Array(entry.count));
      case "times":
        return this.#ascending(entry, new Float64Array(entry.count));
      default:
        throw new Error(`the data has a column of unknown coding: ${entry.coding}`);
    }
  }

  /** LEB128: seven bits a byte, the low ones first. */
  #numbers({ offset, count }, out) {
    const bytes = this.bytes;
    let at = offset;
    for (let index = 0; index < count; index++) {
      let byte = bytes[at++];
      let value = byte & 127;
      for (let scale = 128; byte > 127; scale *= 128) {
        byte = bytes[at++];
        value += (byte & 127) * scale;
      }
      out[index] = value;
    }
    return out;
  }

  /** Differences from one number to the next. */
  #ascending(entry, out) {
    this.#numbers(entry, out);
    for (let index = 1; index < out.length; index++) {
      out[index] += out[index - 1];
    }
    return out;
  }
}
