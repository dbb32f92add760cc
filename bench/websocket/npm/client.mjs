// The tests of interop_test.go with npm's ws: node client.mjs URL true|false (compression).
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { randomBytes } from 'node:crypto';
import WebSocket from 'ws';

const [url, compress] = [process.argv[2], process.argv[3] === 'true'];
const sizes = [0, 1, 125, 126, 127, 1000, 65535, 65536, 65537, 1 << 20, 16 << 20];

async function open() {
  const ws = new WebSocket(url, { perMessageDeflate: compress, maxPayload: 32 << 20 });
  await once(ws, 'open');
  assert.equal(ws.extensions !== '', compress);
  return ws;
}

let ws = await open();
let count = 0;
for (const size of sizes) {
  for (const binary of [false, true]) {
    for (const parts of [1, 5]) {
      const want = binary ? randomBytes(size) : Buffer.alloc(size, 'loopwheel ');
      for (let i = 0; i < parts; i++) {
        const part = want.subarray(Math.floor(size * i / parts), Math.floor(size * (i + 1) / parts));
        ws.send(part, { binary, fin: i === parts - 1 });
      }
      const [got, isBinary] = await once(ws, 'message');
      assert.equal(isBinary, binary);
      assert.ok(want.equals(got), `${size} bytes, binary ${binary}, in ${parts} parts`);
      count++;
    }
  }
}
ws.ping('ping');
assert.equal(String((await once(ws, 'pong'))[0]), 'ping');
ws.send('please ping');
assert.equal(String((await once(ws, 'ping'))[0]), 'are you there?');
ws.close(4005, 'bye');
assert.equal((await once(ws, 'close'))[0], 4005);
for (const [ask, code, reason] of [['please close with 4001', 4001, 'you asked for it'], ['please close and wait', 4002, 'waiting']]) {
  ws = await open();
  ws.send(ask);
  const [gotCode, gotReason] = await once(ws, 'close');
  assert.deepEqual([gotCode, String(gotReason)], [code, reason]);
}
// zlib refuses what refers further back than the window that was agreed on.
for (let bits = 9; compress && bits <= 15; bits++) { // zlib cannot inflate with 8
  const perMessageDeflate = { serverMaxWindowBits: bits, serverNoContextTakeover: true };
  ws = new WebSocket(url, { perMessageDeflate, maxPayload: 32 << 20 });
  await once(ws, 'open');
  assert.equal(ws.extensions, 'permessage-deflate');
  const noise = randomBytes(1 << bits);
  for (const want of [Buffer.alloc(1 << 20, 'loopwheel '), Buffer.concat([noise, Buffer.alloc(7 << bits, 'x'), noise, noise])]) {
    ws.send(want, { binary: true });
    const [got] = await once(ws, 'message');
    assert.ok(want.equals(got), `${want.length} bytes, a window of ${bits} bits`);
    count++;
  }
  ws.close();
  await once(ws, 'close');
}
console.log(`${count} messages, ping, pong and close codes, compression ${compress}`);
