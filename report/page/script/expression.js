// Terms joined by "and", "or" and "not", as calls/src/expression.rs has them.

/** What is wrong with a filter. */
class FilterError extends Error {}

/** How deep parentheses and negations may nest. */
const DEEPEST = 64;

/** Parses to { term }, { not }, { all } or { any }; `parseTerm` takes { text, isQuoted }. */
function parseExpression(text, parseTerm) {
  const tokens = expressionTokens(text);
  let at = 0;
  let depth = 0;
  const join = (parts, key) => (parts.length === 1 ? parts[0] : { [key]: parts });
  const any = () => {
    const parts = [all()];
    while (tokens[at] === "or") {
      at += 1;
      parts.push(all());
    }
    return join(parts, "any");
  };
  const all = () => {
    const parts = [one()];
    while (at < tokens.length && tokens[at] !== "or" && tokens[at] !== ")") {
      at += tokens[at] === "and" ? 1 : 0;
      parts.push(one());
    }
    return join(parts, "all");
  };
  const one = () => {
    const token = tokens[at++];
    if (typeof token === "object") {
      return { term: parseTerm(token) };
    }
    if (token === "not") {
      return { not: nested(one) };
    }
    if (token !== "(") {
      const place = { and: "before `and`", or: "before a comma or `or`", ")": "before `)`" }[token];
      throw new FilterError(`an empty term ${place ?? "at the end"}`);
    }
    const inner = nested(any);
    if (tokens[at++] !== ")") {
      throw new FilterError("a `(` without its `)`");
    }
    return inner;
  };
  const nested = (parse) => {
    if (depth === DEEPEST) {
      throw new FilterError(
        `more than ${DEEPEST} parentheses and negations inside each other`,
      );
    }
    depth += 1;
    const inner = parse();
    depth -= 1;
    return inner;
  };
  const expression = any();
  if (at < tokens.length) {
    throw new FilterError("a `)` without its `(`");
  }
  return expression;
}

/** Words are objects, what joins them is text. */
function expressionTokens(text) {
  const single = { ",": "or", "(": "(", ")": ")", "-": "not", "!": "not" };
  const tokens = [];
  let rest = withoutBlanks(text);
  while (rest !== "") {
    if (single[rest[0]]) {
      tokens.push(single[rest[0]]);
      rest = withoutBlanks(rest.slice(1));
      continue;
    }
    const { token, length } = expressionWord(rest);
    tokens.push(token);
    rest = withoutBlanks(rest.slice(length));
  }
  return tokens;
}

/** `\s` and `trimStart` differ from Rust in two characters. */
const BLANK = /\p{White_Space}/u;

function withoutBlanks(text) {
  let at = 0;
  while (at < text.length && BLANK.test(text[at])) {
    at += 1;
  }
  return text.slice(at);
}

const KEYWORDS = ["and", "or", "not"];

/** Quotes keep what would end a word; parentheses inside belong to it, but not to a keyword. */
function expressionWord(text) {
  let [word, isInside, hasQuotes, depth, at] = ["", false, false, 0, 0];
  for (; at < text.length; at++) {
    const character = text[at];
    if (character === '"') {
      [isInside, hasQuotes] = [!isInside, true];
      continue;
    }
    if (!isInside) {
      const isEnd = { ",": true, ")": depth === 0, "(": !hasQuotes && KEYWORDS.includes(word) };
      if (isEnd[character] || BLANK.test(character)) {
        break;
      }
      depth += { "(": 1, ")": -1 }[character] ?? 0;
    }
    word += character;
  }
  if (isInside) {
    throw new FilterError("a quote without its end");
  }
  const isKeyword = !hasQuotes && KEYWORDS.includes(word);
  return {
    token: isKeyword ? word : { text: word, isQuoted: text[0] === '"' },
    length: at,
  };
}
