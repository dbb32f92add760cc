// A server for client_test.go with npm's ws: node server.mjs true|false (compression) [BITS (the client's window)].
// It prints its URL, and then what it hears of its clients besides messages.
import { WebSocketServer } from 'ws';

const [compress, bits] = [process.argv[2] === 'true', process.argv[3]];
const perMessageDeflate = compress && { threshold: 0, ...(bits && { clientMaxWindowBits: Number(bits) }) };
const server = new WebSocketServer({ host: '127.0.0.1', port: 0, maxPayload: 32 << 20, perMessageDeflate });
server.on('listening', () => console.log(`ws://127.0.0.1:${server.address().port}/`));
server.on('connection', (ws) => {
  ws.on('message', (data, binary) => {
    switch (String(data.subarray(0, 100))) {
      case 'please ping':
        return ws.ping('are you there?');
      case 'please close':
        return ws.close(4001, 'you asked for it');
    }
    const parts = data.length > 1000 ? 5 : 1;
    for (let i = 0; i < parts; i++) {
      const part = data.subarray(Math.floor(data.length * i / parts), Math.floor(data.length * (i + 1) / parts));
      ws.send(part, { binary, fin: i === parts - 1 });
    }
  });
  ws.on('pong', (data) => console.log(`pong ${data}`));
  ws.on('close', (code, reason) => console.log(`closed ${code} ${reason}`));
  ws.on('error', (err) => console.log(`error ${err}`));
});
