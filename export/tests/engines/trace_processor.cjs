// Runs Perfetto's trace processor in Node as Perfetto's page runs it in a worker. Usage:
//   node trace_processor.cjs FOLDER
// FOLDER has Perfetto's engine_bundle.js and WebAssembly modules. Requests of the processor's RPC
// come through stdin, replies go to stdout, each behind its length (4 bytes, little-endian).
'use strict';

const fs = require('fs');
const path = require('path');
const vm = require('vm');

const folder = process.argv[2];

// The end of the channel that the page would have.
const port = {
  postMessage(reply) {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(reply.length);
    const message = Buffer.concat([length, reply]);
    for (let at = 0; at < message.length;) {
      at += fs.writeSync(1, message, at);
    }
  },
};

// The worker loads its module with a synchronous request.
class XMLHttpRequest {
  open(_method, url) {
    this.url = url;
  }
  send() {
    const bytes = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.status = 200;
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  }
}

const log = (...words) => console.error(...words);
const scope = {
  XMLHttpRequest,
  WorkerGlobalScope: class {},
  TextDecoder,
  TextEncoder,
  URL,
  addEventListener() {},
  clearTimeout,
  console: {debug() {}, error: log, info() {}, log, warn: log},
  crypto: require('crypto').webcrypto,
  location: {href: 'http://localhost/engine_bundle.js', pathname: '/'},
  navigator: {},
  performance,
  setTimeout,
};
scope.self = scope;
vm.createContext(scope);
vm.runInContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), scope);
// The engine asks whether a message is a Uint8Array of its own realm.
const Bytes = vm.runInContext('Uint8Array', scope);
scope.onmessage({data: port});

// The module is initialised in a later turn of the event loop.
setImmediate(() => {
  const input = fs.readFileSync(0);
  for (let at = 0; at < input.length;) {
    const length = input.readUInt32LE(at);
    port.onmessage({data: new Bytes(input.subarray(at + 4, at + 4 + length))});
    at += 4 + length;
  }
});
