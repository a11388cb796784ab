// Debugs a trace with Microsoft's client of the Debug Adapter Protocol:
//   NODE_PATH=node_modules node session.js ADAPTER TRACE
// ADAPTER is a shell script that starts the adapter; TRACE is of clean/memory_history.

const assert = require("assert");
const { DebugClient } = require("@vscode/debugadapter-testsupport");

const [adapter, trace] = process.argv.slice(2);

/** Starts an adapter; the client also has all messages that it was sent. */
async function start() {
  const client = new DebugClient("/bin/sh", adapter, "cutape", { stdio: "pipe" });
  client.defaultTimeout = 30000;
  client.messages = [];
  const dispatch = client.dispatch.bind(client);
  client.dispatch = (body) => {
    client.messages.push(JSON.parse(body));
    dispatch(body);
  };
  await client.start();
  client.exit = new Promise((resolve) => client._adapterProcess.on("exit", resolve));
  return client;
}

/** Ends a session as an editor does; the adapter ends by itself. */
async function end(client) {
  await client.disconnectRequest({});
  assert.strictEqual(await client.exit, 0);
  client.messages.forEach(({ seq }, at) => assert.strictEqual(seq, at + 1));
}

/** Moves, and where that stopped: the event, and the frames. */
async function move(client, request) {
  const stops = client.waitForEvent("stopped");
  const [{ body }] = await Promise.all([stops, client[`${request}Request`]({ threadId: 1 })]);
  assert.strictEqual(body.threadId, 1);
  const stack = await client.stackTraceRequest({ threadId: body.threadId });
  return { ...body, frames: stack.body.stackFrames };
}

async function refused(promise, part) {
  await assert.rejects(promise, ({ message }) => message.includes(part) || assert.fail(message));
}

/** Frames, scopes, variables, memory and expressions at a launch. */
async function inspect(client, { frames }) {
  const { scopes } = (await client.scopesRequest({ frameId: frames[0].id })).body;
  assert.deepStrictEqual(
    scopes.map(({ name }) => name),
    ["Arguments", "Memory", "Streams", "Modules", "Graphs"],
  );
  const shown = scopes.map((scope) => client.variablesRequest(scope));
  const [named, memory] = (await Promise.all(shown)).map(({ body }) => body.variables);
  const output = named.find(({ name }) => name === "parameter 1");
  const { name, memoryReference } = memory[2];
  assert.deepStrictEqual([name, memoryReference], ["memory#3", output.memoryReference]);
  const bytes = { memoryReference, offset: 4, count: 8 };
  const sevens = { address: `0x${(BigInt(memoryReference) + 4n).toString(16)}`, data: "BwAAAAcAAAA=" };
  const read = await client.customRequest("readMemory", bytes);
  assert.deepStrictEqual(read.body, { ...sevens, unreadableBytes: 0 });
  const expression = "memory#3+4+8 u32";
  const watched = await client.evaluateRequest({ expression, context: "watch" });
  assert.match(watched.body.result, /\+0: 7 7$/);
  return { scopes, output, bytes };
}

/** Bytes that change stop the session at the call that changes them, on both ways. */
async function dataBreakpoints(client, launch, { scopes, output, bytes }) {
  const info = (place) => client.dataBreakpointInfoRequest(place).then(({ body }) => body);
  const [{ variablesReference }] = scopes;
  const whole = await info({ variablesReference, name: output.name });
  const word = await info({ variablesReference, name: output.name, bytes: 4 });
  assert.deepStrictEqual(whole.accessTypes, ["write"]);
  assert.match(whole.description, /^parameter 1: 0x[0-9a-f]+, 4096 bytes$/);
  const number = await info({ variablesReference, name: "parameter 2" });
  assert.strictEqual(number.dataId, null);
  assert.match(number.description, /does not point into memory/);
  const address = await info({ name: bytes.memoryReference, bytes: 8, asAddress: true });
  assert.strictEqual(address.dataId, `${bytes.memoryReference}+8`);
  assert.strictEqual((await info({ name: "memory#3+2048 u32" })).dataId, "memory#3+2048 u32");
  assert.strictEqual((await info({ name: "memory#99" })).dataId, null);

  const set = async (wanted) =>
    (await client.setDataBreakpointsRequest({ breakpoints: wanted })).body.breakpoints;
  const [first, second, third] = await set([
    { dataId: "memory#3+2048 u32", accessType: "write" },
    { dataId: word.dataId, accessType: "read" },
    { accessType: "write" },
  ]);
  assert.deepStrictEqual([first, second, third].map(({ verified }) => verified), [true, false, false]);
  assert.match(second.message, /write, not "read"/);
  await client.setFunctionBreakpointsRequest({ breakpoints: [] });
  const after = await move(client, "continue");
  assert.deepStrictEqual([after.reason, after.hitBreakpointIds], ["data breakpoint", [first.id]]);
  assert.match(after.description, /7 -> 1048576, written by call \d+ cuMemcpyDtoD_v2/);
  const at = await move(client, "reverseContinue");
  assert.strictEqual(at.reason, "data breakpoint");
  assert.match(at.frames[0].name, /cuMemcpyDtoD_v2/);
  const before = await move(client, "reverseContinue");
  assert.match(before.frames[0].name, /cuMemsetD32_v2/);
  await set([]);
  await client.setFunctionBreakpointsRequest({ breakpoints: [{ name: "kernel:step" }] });
  const again = await move(client, "continue");
  assert.strictEqual(again.frames[0].name, launch.frames[0].name);
}

async function session() {
  const client = await start();
  await refused(client.threadsRequest(), "threads before launch");
  await refused(client.attachRequest({}), "launch");
  const configured = client.waitForEvent("initialized");
  const able = (await client.initializeRequest()).body;
  assert(able.supportsDataBreakpoints && able.supportsStepBack && able.supportsReadMemoryRequest);
  await refused(client.launchRequest({}), "launch needs `trace`");
  await refused(client.launchRequest({ trace: "/no/trace" }), "/no/trace");
  await Promise.all([configured, client.launchRequest({ trace })]);
  const names = [{ name: "kernel:step" }, { name: "kernel:no" }, {}];
  const set = await client.setFunctionBreakpointsRequest({ breakpoints: names });
  assert.deepStrictEqual(set.body.breakpoints[0], { id: 1, verified: true });
  assert.match(set.body.breakpoints[1].message, /no kernel `no`/);
  assert.match(set.body.breakpoints[2].message, /needs `name`/);
  const filters = await client.setExceptionBreakpointsRequest({ filters: ["failed", "caught"] });
  assert.deepStrictEqual(filters.body.breakpoints.map(({ verified }) => verified), [false, false]);
  const entered = client.waitForEvent("stopped");
  await client.configurationDoneRequest({});
  assert.strictEqual((await entered).body.reason, "entry");

  const launch = await move(client, "continue");
  assert.deepStrictEqual([launch.reason, launch.hitBreakpointIds], ["breakpoint", [1]]);
  assert.match(launch.frames[0].name, /cuLaunchKernel/);
  const place = await inspect(client, launch);
  await dataBreakpoints(client, launch, place);

  const copy = await move(client, "next");
  assert.match(copy.frames[0].name, /cuMemcpyDtoD_v2/);
  const back = await move(client, "stepBack");
  assert.deepStrictEqual([back.reason, back.frames[0].name], ["breakpoint", launch.frames[0].name]);
  const { source, line } = copy.frames[0];
  const lines = await client.setBreakpointsRequest({ source, breakpoints: [{ line }, { line: 1 }] });
  const [reached, other] = lines.body.breakpoints;
  assert.deepStrictEqual([reached.verified, reached.line, other.verified], [true, line, false]);
  const stops = client.assertStoppedLocation("breakpoint", { path: source.path, line });
  await Promise.all([stops, client.continueRequest({ threadId: 1 })]);
  const again = await move(client, "reverseContinue");
  assert.strictEqual(again.frames[0].name, launch.frames[0].name);

  const memoryReference = "0x10";
  await refused(client.customRequest("readMemory", { memoryReference, count: 4 }), "no memory lies");
  await refused(client.evaluateRequest({ expression: "brake" }), "did you mean `break`?");
  await refused(client.scopesRequest({ frameId: 999 }), "no such frame");
  await refused(client.variablesRequest({ variablesReference: 999 }), "no such variables");
  await refused(client.gotoRequest({ threadId: 1, targetId: 1 }), "goto is not supported");
  await end(client);
}

/** An editor that counts lines from 0 gets and gives such ones. */
async function linesFrom0() {
  const client = await start();
  await client.initializeRequest({ adapterID: "cutape", linesStartAt1: false, pathFormat: "path" });
  await client.launchRequest({ trace });
  await client.setFunctionBreakpointsRequest({ breakpoints: [{ name: "kernel:step" }] });
  const { frames } = await move(client, "continue");
  const { source, line } = frames[0];
  const set = await client.setBreakpointsRequest({ source, breakpoints: [{ line }] });
  assert.strictEqual(set.body.breakpoints[0].verified, true);
  await end(client);
  return line;
}

/** What the client does for `hitBreakpoint`, as an editor does when a session starts. */
async function lineOfLaunch() {
  const client = await start();
  await Promise.all([client.configurationSequence(), client.launch({ trace })]);
  await client.setFunctionBreakpointsRequest({ breakpoints: [{ name: "kernel:step" }] });
  const { frames } = await move(client, "continue");
  await end(client);
  return frames[0].line;
}

async function main() {
  await session();
  assert.strictEqual(await linesFrom0(), (await lineOfLaunch()) - 1);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
