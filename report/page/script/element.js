// Elements of the page. Names in a trace come from other programs: text is only ever set as text.

/**
 * An element. Properties: `class`, `on…` functions, `style` as an object, others as attributes.
 * Children that are not elements are text; arrays are flattened, null is left out.
 */
function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) {
      continue;
    }
    if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else if (name === "style") {
      for (const [property, text] of Object.entries(value)) {
        node.style.setProperty(property, text);
      }
    } else if (name === "href" && !String(value).startsWith("#")) {
      throw new Error("links lead to places of this page only");
    } else {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      node.append(child);
    }
  }
  return node;
}

function replaceContent(node, ...children) {
  node.replaceChildren();
  return append(node, children);
}

/** The text with a link wherever it names a call. */
function withCallLinks(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(/\bcalls? (\d+)\b/g)) {
    parts.push(text.slice(end, match.index), callLink(Number(match[1]), match[0]));
    end = match.index + match[0].length;
  }
  parts.push(text.slice(end));
  return parts;
}

function callLink(call, text = count(call)) {
  return element("a", { href: `#/call/${call}`, title: "Show on the timeline" }, text);
}

function badge(kind, text = kind) {
  return element("span", { class: `badge ${kind}` }, text);
}

function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element(
    "dl",
    { class: "facts" },
    shown.map(([label, value]) => [element("dt", {}, label), element("dd", {}, value)]),
  );
}

function cssColour(name) {
  const probe = element("i", { style: { color: `var(${name})`, display: "none" } });
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

/** A canvas with one pixel for each of the screen's; returns its context in CSS pixels. */
function sizedContext(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [columns, rows] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/**
 * The text, cut to a width with … for its end, or for its middle if both ends matter. A number is
 * shown as a whole or not at all: the last digits of one look like another.
 */
function fitted(context, text, width, keptTail = 0.35) {
  if (context.measureText(text).width <= width) {
    return text;
  }
  const each = context.measureText("m…").width / 2;
  let kept = Math.floor(width / each);
  while (kept > 1) {
    const tail = Math.floor(kept * keptTail);
    const short = `${headOf(text, kept - tail)}…${tailOf(text, tail)}`;
    if (context.measureText(short).width <= width) {
      return short;
    }
    kept -= 1;
  }
  return "";
}

function headOf(text, length) {
  const head = text.slice(0, length);
  return /^[\d.,]/.test(text.slice(length)) ? head.replace(/\d[\d.,]*$/, "") : head;
}

function tailOf(text, length) {
  const tail = length ? text.slice(-length) : "";
  return /\d[.,]?$/.test(text.slice(0, text.length - length)) ? tail.replace(/^[\d.,]+/, "") : tail;
}
