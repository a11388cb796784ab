// Who wrote some bytes: commands that ask, and an answer as `cutape why --report` writes it.

/** A command that answers who wrote some bytes; a click selects all of it. */
function whyCommand({ facts: { summary } }, words) {
  const path = summary.trace.path;
  const shown = /^[\w./+:@-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
  return element(
    "code",
    { class: "command", title: "Says who wrote these bytes. Click to select it." },
    `cutape why ${shown} ${words}`,
  );
}

function whyView({ facts: { why } }) {
  return element(
    "div",
    { class: "view" },
    element("h1", {}, "Who wrote"),
    element(
      "p",
      { class: "about" },
      element("b", {}, placeOf(why)),
      why.before === null ? ", at the end of the trace" : [", before ", callLink(why.before, `call ${count(why.before)}`)],
    ),
    answerNode(why),
  );
}

function placeOf({ label, address, length }) {
  const bytesThere = counted(length, "byte");
  const hexadecimal = `0x${address.toString(16)}`;
  return label ? `${label} (${hexadecimal}, ${bytesThere})` : `${hexadecimal}, ${bytesThere}`;
}

/** The writes of some bytes, the last one first, with what the last writer read. */
function answerNode({ writes, inputs, changes }) {
  if (writes.length === 0) {
    return element("p", { class: "none" }, "No call of the replay had memory there.");
  }
  return [
    element(
      "ul",
      { class: "chain" },
      writes.map((write, number) =>
        element(
          "li",
          {},
          writerOf(write),
          write.parts.length ? element("div", { class: "dim" }, changedText(write)) : null,
          number === 0 ? inputs.map((input) => inputNode(input)) : null,
        ),
      ),
    ),
    changes > writes.length
      ? element("p", { class: "more dim" }, `${counted(changes - writes.length, "earlier change")}.`)
      : null,
  ];
}

function inputNode(input) {
  const what = input.parameter === null ? "It reads " : `Its parameter ${input.parameter} points at `;
  return element("div", { class: "history" }, what, element("b", {}, placeOf(input)), answerNode(input));
}

/** As the text of `why` names a writer. */
function writerOf({ by, call, by_call: { function: name, kernel, from } }) {
  const node = typeof by === "object" ? by.node : null;
  const words = {
    call: "written by ",
    host: "written by the program’s CPU code before ",
    begins: "its memory is made by ",
    ends: "its memory ended with ",
  };
  return [
    node ? `written by node ${node[0]} (${node[1]}) of the graph of ` : words[by],
    callLink(call, `call ${count(call)}`),
    ` ${name}${kernel && !node ? ` ${kernel}` : ""}${from ? `, ${from}` : ""}`,
  ];
}

function changedText({ parts, before, after }) {
  const amount = parts.reduce((sum, [, length]) => sum + length, 0);
  const hexadecimal = (list) =>
    list
      .slice(0, 8)
      .map((byte) => byte.toString(16).padStart(2, "0"))
      .join(" ") + (list.length > 8 ? " …" : "");
  const values = before.length ? `: ${hexadecimal(before)} → ${hexadecimal(after)}` : "";
  return `${counted(amount, "byte")} in ${counted(parts.length, "part")}, the first at +${parts[0][0]}${values}`;
}
