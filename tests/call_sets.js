// Checks that the filter of a report page finds the calls of call_sets.json:
//   node call_sets.js PAGE.html report/page/script call_sets.json

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [page, sources, table] = process.argv.slice(2);

/** The page's scripts up to the filter, in their order, with the data of the page. */
async function load() {
  const html = fs.readFileSync(page, "utf8");
  const getElementById = (id) => {
    const [, textContent] = new RegExp(`id="${id}"[^>]*>([^<]*)<`).exec(html);
    return { textContent, remove() {} };
  };
  const context = vm.createContext({
    ...{ Blob, DecompressionStream, Response, TextDecoder, TextEncoder, atob },
    document: { getElementById },
  });
  const names = ["data", "quantity", "trace", "expression", "call_set", "filter"];
  const texts = names.map((name) => fs.readFileSync(path.join(sources, `${name}.js`), "utf8"));
  const make = `(async () => {
    const facts = await readFacts();
    return new Filter(new Trace(facts, await readColumns(facts.columns)));
  })()`;
  return vm.runInContext(`${texts.join("\n")}\n${make}`, context);
}

async function main() {
  const filter = await load();
  const wrong = [];
  for (const { set, calls, error, page_calls, page_error } of JSON.parse(fs.readFileSync(table))) {
    filter.set(set);
    const expected = page_error ?? (page_calls ? undefined : error);
    if (expected === undefined ? filter.error !== null : !filter.error?.includes(expected)) {
      wrong.push(`${set}: ${filter.error}, not ${expected ?? "calls"}`);
    } else if (expected === undefined) {
      const found = JSON.stringify(Array.from(filter.calls()));
      const wanted = JSON.stringify(page_calls ?? calls);
      if (found !== wanted) {
        wrong.push(`${set}: ${found}, not ${wanted}`);
      }
    }
  }
  if (wrong.length > 0) {
    console.error(wrong.join("\n"));
    process.exitCode = 1;
  }
}

main();
