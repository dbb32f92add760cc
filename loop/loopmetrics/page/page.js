// The page asks for the server's state once a second while somebody sees it, and remembers five minutes.
'use strict';
const keep = 300;
const history = [];
let last = null;

const $ = id => document.getElementById(id);
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name);

function make(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

// short is a number with its unit, of at most eight characters, as a tile has place for.
const short = (n, unit) => n.toFixed(n < 99.95 ? 1 : 0) + ' ' + unit;

function count(n) {
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e4]]) {
    if (n >= size) return short(n / (unit === 'k' ? 1e3 : size), unit);
  }
  return n < 10 && n % 1 ? n.toFixed(1) : Math.round(n).toLocaleString('en');
}

function bytes(n) {
  for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
    if (n >= size) return short(n / size, unit);
  }
  return Math.round(n) + ' B';
}

function duration(ms) {
  if (ms >= 36e5) return (ms / 36e5).toFixed(1) + ' h';
  if (ms >= 6e4) return (ms / 6e4).toFixed(1) + ' min';
  if (ms >= 1e3) return (ms / 1e3).toFixed(1) + ' s';
  if (ms >= 1) return ms.toFixed(ms < 10 ? 1 : 0) + ' ms';
  return Math.round(ms * 1e3) + ' µs';
}

const sum = (loops, key) => loops.reduce((n, l) => n + l[key], 0);
const worst = (loops, key) => loops.reduce((n, l) => Math.max(n, l[key]), 0);

// rates compares two states.
function rates(now, before) {
  const seconds = before ? (new Date(now.time) - new Date(before.time)) / 1e3 : 0;
  const rate = (a, b) => seconds > 0 && a >= b ? (a - b) / seconds : 0;
  const loops = now.loops.map((l, i) => {
    const b = before && before.loops[i];
    return b ? { messages: rate(l.messages, b.messages), in: rate(l.bytesIn, b.bytesIn), out: rate(l.bytesOut, b.bytesOut),
      fired: rate(l.fired, b.fired), busy: Math.min(100, rate(l.busy, b.busy) / 10) } :
      { messages: 0, in: 0, out: 0, fired: 0, busy: 0 };
  });
  return { loops, accepted: rate(now.accepted, before ? before.accepted : 0) };
}

function tile(name, value) {
  const t = make('div', undefined, 'tile');
  t.append(make('b', value), make('span', name));
  return t;
}

function showTiles(s, r) {
  $('tiles').replaceChildren(
    tile('connections', count(sum(s.loops, 'conns'))),
    tile('accepted per second', count(r.accepted)),
    tile('messages per second', count(sum(r.loops, 'messages'))),
    tile('received per second', bytes(sum(r.loops, 'in'))),
    tile('sent per second', bytes(sum(r.loops, 'out'))),
    tile('timers', count(sum(s.loops, 'timers'))),
    tile('evicted', count(s.evicted)),
    tile('refused', count(s.refused)),
    tile('cut', count(s.cut)),
    tile('panics', count(s.panics)),
    tile('held back', count(s.heldBack)),
    tile('buffered, % of the limit', s.buffered.toFixed(0)),
    ...unusedTiles(s),
  );
}

// unusedTiles are of what many servers do not have: they come when there is something to tell.
function unusedTiles(s) {
  const { handshakes, handshakesFailed: failed, handshakesPending: pending, offloaded, offloadWaiting: waiting } = s;
  const tiles = [];
  if (handshakes + failed + pending) tiles.push(tile(`TLS handshakes; ${count(failed)} failed, ${count(pending)} under way`, count(handshakes)));
  if (offloaded + waiting) tiles.push(tile(`jobs run; ${count(waiting)} wait`, count(offloaded)));
  return tiles;
}

const charts = [
  ['messages/s', p => p.messages, count],
  ['busiest loop, %', p => p.busy, n => n.toFixed(0), 100],
  ['worst lag', p => p.lag, duration],
  ['longest turn', p => p.turn, duration],
  ['longest wait of a socket', p => p.wait, duration],
];

function remember(s, r) {
  history.push({ messages: sum(r.loops, 'messages'), busy: worst(r.loops, 'busy'), lag: worst(s.loops, 'lag'), turn: worst(s.loops, 'turn'),
    wait: worst(s.loops, 'socketWait') });
  if (history.length > keep) history.shift();
}

function showHistory() {
  const area = $('history');
  if (!area.children.length) {
    for (const [name] of charts) {
      const f = make('figure', undefined, 'card');
      const caption = make('figcaption');
      caption.append(make('span', name), make('span'));
      f.append(caption, make('canvas'));
      area.append(f);
    }
  }
  charts.forEach(([, value, show, full], i) => {
    const figure = area.children[i];
    const values = history.map(value);
    const top = Math.max(...values);
    figure.querySelector('figcaption').lastChild.textContent = show(values.at(-1)) + ' now, ' + show(top) + ' at most';
    drawLine(figure.querySelector('canvas'), values, show, full);
  });
}

// fit makes a canvas as fine as the screen.
function fit(canvas) {
  const scale = devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const g = canvas.getContext('2d');
  g.scale(scale, scale);
  return [g, width, height];
}

// nice is the next larger number of 1, 2 and 5 times a power of ten: the top of an axis.
function nice(n) {
  const power = 10 ** Math.floor(Math.log10(n || 1));
  return power * [1, 2, 5, 10].find(m => n <= m * power * 1.0001);
}

// drawLine draws values, one a second, with a scale on the left and the time below.
function drawLine(canvas, values, show, full) {
  const [g, width, height] = fit(canvas);
  const top = full || nice(Math.max(...values));
  const left = 52, bottom = height - 16, above = 8;
  const seconds = [60, 120, keep].find(n => values.length <= n);
  const x = i => width - 1 - (values.length - 1 - i) * (width - left) / (seconds - 1);
  const y = v => bottom - (bottom - above) * v / top;
  g.font = '11px system-ui, sans-serif';
  g.fillStyle = color('--dim');
  g.strokeStyle = color('--line');
  g.textBaseline = 'middle';
  g.textAlign = 'right';
  for (const v of [0, top / 2, top]) {
    g.fillText(show(v), left - 6, y(v));
    g.beginPath();
    g.moveTo(left, Math.round(y(v)) + 0.5);
    g.lineTo(width, Math.round(y(v)) + 0.5);
    g.stroke();
  }
  g.textBaseline = 'alphabetic';
  g.fillText('now', width - 1, height - 2);
  g.textAlign = 'left';
  g.fillText(seconds / 60 + ' min ago', left, height - 2);
  g.beginPath();
  values.forEach((v, i) => g.lineTo(x(i), y(Math.min(v, top))));
  g.strokeStyle = color('--main');
  g.lineWidth = 1.5;
  g.stroke();
  g.lineTo(x(values.length - 1), bottom);
  g.lineTo(x(0), bottom);
  g.globalAlpha = 0.15;
  g.fillStyle = color('--main');
  g.fill();
}

// howToRead says what the rings of the wheels are.
function howToRead(rings) {
  const turn = rings.map(ring => duration(ring.span * ring.slots));
  return `A wheel shows when its loop's timers are due. The hand points to now, and time runs clockwise. The innermost ring is the next ${turn[0]}, ` +
    `the one around it ${turn[1]}, then ${turn[2]}; each further one is ${rings[0].slots} times as long. A slot that has timers is filled.`;
}

// drawWheel draws the levels as rings around the middle. The hand is at the top.
function drawWheel(canvas, rings) {
  const [g, width] = fit(canvas);
  const middle = width / 2, inner = 16;
  const step = (middle - inner - 8) / rings.length;
  rings.forEach((ring, level) => {
    const radius = inner + step * (level + 0.5);
    const arc = (from, to) => {
      const at = slot => slot / ring.slots * 2 * Math.PI - Math.PI / 2;
      g.beginPath();
      g.arc(middle, middle, radius, at(from), at(to));
      g.stroke();
    };
    g.lineWidth = step * 0.72;
    g.strokeStyle = color('--ring');
    arc(0, ring.slots);
    g.strokeStyle = color('--main');
    for (const slot of ring.ahead) arc(slot, slot + 0.9);
  });
  g.beginPath();
  g.moveTo(middle, middle);
  g.lineTo(middle, 3);
  g.lineWidth = 2;
  g.strokeStyle = color('--warm');
  g.stroke();
}

function showLoops(s, r) {
  const area = $('loops');
  while (area.children.length > s.loops.length) area.lastChild.remove();
  s.loops.forEach((l, i) => {
    let card = area.children[i];
    if (!card) {
      card = make('article', undefined, 'card loop');
      card.append(make('h2'), make('canvas'), make('dl'));
      area.append(card);
    }
    const title = card.querySelector('h2');
    title.textContent = l.answered ? 'loop ' + i : 'loop ' + i + ' does not answer';
    title.className = l.answered ? '' : 'bad';
    const list = card.querySelector('dl');
    list.replaceChildren();
    const levels = (l.rings || []).filter(ring => ring.timers).map(ring => ['in the ring of ' + duration(ring.span * ring.slots), count(ring.timers)]);
    for (const [name, value] of [
      ['connections', count(l.conns)], ['messages/s', count(r.loops[i].messages)], ['busy', r.loops[i].busy.toFixed(1) + ' %'],
      ['lag', duration(l.lag)], ['longest turn', duration(l.turn)], ['sockets wait', duration(l.socketWait)], ['blocked', count(l.blocked)], ['mailbox', count(l.mailbox)],
      ['fired/s', count(r.loops[i].fired)], ['timers', count(l.timers)], ...levels]) list.append(make('dt', name), make('dd', value));
    if (l.rings) {
      drawWheel(card.querySelector('canvas'), l.rings);
      $('how').textContent = howToRead(l.rings);
    }
  });
}

// omissible are columns that a phone may leave out, and their classes.
const omissible = { loop: 'loop-number', handler: 'handler', age: 'age' };

function table(title, heads, rows, className = '') {
  const card = make('div', undefined, 'card ' + className);
  const t = make('table'), head = t.createTHead().insertRow(), body = t.createTBody();
  const classes = heads.map(h => omissible[h] || '');
  heads.forEach((h, i) => head.append(make('th', h, classes[i])));
  for (const row of rows) {
    const tr = body.insertRow();
    row.forEach((cell, i) => {
      const td = tr.insertCell();
      td.className = classes[i];
      if (cell instanceof Node) td.append(cell); else td.textContent = cell;
    });
  }
  if (!rows.length) {
    const td = body.insertRow().insertCell();
    td.colSpan = heads.length;
    td.className = 'none';
    td.textContent = 'none';
  }
  card.append(make('h2', title), t);
  return card;
}

function merged(s, key, weight) {
  return s.loops.flatMap((l, loop) => (l[key] || []).map(c => ({ ...c, loop }))).sort((a, b) => weight(b) - weight(a)).slice(0, 10);
}

function closer(c, readOnly) {
  if (readOnly) return '';
  const b = make('button', 'close');
  b.addEventListener('click', async () => {
    b.disabled = true;
    const answer = await fetch(`close?loop=${c.loop}&conn=${c.id}`, { method: 'POST' });
    b.textContent = answer.ok ? 'closed' : 'failed';
  });
  return b;
}

function showLists(s) {
  if ($('lists').matches(':hover') && $('lists').children.length) return; // do not move what is being pointed at
  const conns = (title, list, what, value) => table(title, ['connection', 'loop', 'handler', what, 'age', ''],
    list.map(c => ['#' + c.id + ' ' + c.remote, c.loop, c.handler + (c.paused ? ', paused' : ''), value(c), duration(c.age), closer(c, s.readOnly)]), 'conns');
  const held = c => c.pending + c.buffered;
  $('lists').replaceChildren(
    table('Longest turns of ten minutes', ['took', 'loop', 'ago', 'work', 'connection', 'handler'],
      merged(s, 'slow', t => t.took).map(t => [duration(t.took), t.loop, duration(t.ago), t.work, t.conn ? '#' + t.conn : '', t.handler])),
    conns('Largest: bytes that wait', merged(s, 'largest', held), 'out + in', c => bytes(c.pending) + ' + ' + bytes(c.buffered)),
    conns('Slowest: output does not move', merged(s, 'slowest', c => c.stalled), 'for', c => duration(c.stalled) + ', ' + bytes(c.pending)),
    conns('Longest silent', merged(s, 'silent', c => c.silent), 'for', c => duration(c.silent)),
  );
}

function show(s) {
  const r = rates(s, last);
  if (last) remember(s, r);
  last = s;
  const seen = sum(s.loops, 'seen'), all = sum(s.loops, 'conns');
  $('state').textContent = 'at ' + new Date(s.time).toLocaleTimeString() + (seen < all ? `; ${count(seen)} of ${count(all)} connections looked at, in turns` : '');
  $('state').className = '';
  showTiles(s, r);
  if (history.length) showHistory();
  showLoops(s, r);
  showLists(s);
}

async function look() {
  if (document.hidden) return;
  try {
    const answer = await fetch('state');
    if (!answer.ok) throw new Error(answer.status);
    show(await answer.json());
  } catch (e) {
    $('state').textContent = 'the server does not answer: ' + e.message;
    $('state').className = 'bad';
  }
}

look();
setInterval(look, 1000);
