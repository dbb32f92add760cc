// The page asks for the server's state once a second while somebody sees it, and remembers five minutes.
// What has the pointer or the focus stays where it is: nothing above the lists changes its height, and
// the lists hold still while they have one of the two.
'use strict';
const keep = 300e3;  // milliseconds of the charts
const gap = 4e3;     // so long without a state is a gap of the charts
const history = [];
let last = null, lastAt = 0, looking = false;

const $ = id => document.getElementById(id);
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name);

function make(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

// put changes a text only if it is another: a live region speaks, and a selection ends, with each change.
function put(e, text) { if (e.textContent !== String(text)) e.textContent = text; }

// fill gives an element n children, and keeps those that it has.
function fill(parent, n, child) {
  while (parent.children.length > n) parent.lastChild.remove();
  while (parent.children.length < n) parent.append(child(parent.children.length));
  return [...parent.children];
}

// short is a number with its unit, of at most eight characters, as a tile has place for. NaN is what
// nobody knows, such as a rate after a gap.
const short = (n, unit) => n.toFixed(n < 99.95 ? 1 : 0) + ' ' + unit;

function count(n) {
  if (Number.isNaN(n)) return '–';
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e4]]) {
    if (n >= size) return short(n / (unit === 'k' ? 1e3 : size), unit);
  }
  return n < 10 && n % 1 ? n.toFixed(1) : Math.round(n).toLocaleString('en');
}

function bytes(n) {
  if (Number.isNaN(n)) return '–';
  for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
    if (n >= size) return short(n / size, unit);
  }
  return Math.round(n) + ' B';
}

function duration(ms) {
  if (Number.isNaN(ms)) return '–';
  if (ms >= 72 * 36e5) return (ms / 864e5).toFixed(1) + ' d';
  if (ms >= 36e5) return (ms / 36e5).toFixed(1) + ' h';
  if (ms >= 6e4) return (ms / 6e4).toFixed(1) + ' min';
  if (ms >= 1e3) return (ms / 1e3).toFixed(1) + ' s';
  if (ms >= 1) return ms.toFixed(ms < 10 ? 1 : 0) + ' ms';
  return Math.round(ms * 1e3) + ' µs';
}

const sum = (loops, key) => loops.reduce((n, l) => n + l[key], 0);
const worst = (loops, key) => loops.reduce((n, l) => Math.max(n, l[key]), 0);

// rates compares two states. before is null if there was none lately.
function rates(now, before) {
  const seconds = before ? (new Date(now.time) - new Date(before.time)) / 1e3 : NaN;
  const rate = (a, b) => a >= b ? (a - b) / seconds : NaN; // less than before: the server has restarted
  const loops = now.loops.map((l, i) => {
    const b = before?.loops[i] || l;
    return { messages: rate(l.messages, b.messages), in: rate(l.bytesIn, b.bytesIn), out: rate(l.bytesOut, b.bytesOut),
      fired: rate(l.fired, b.fired), busy: Math.min(100, rate(l.busy, b.busy) / 10) };
  });
  return { loops, accepted: rate(now.accepted, before ? before.accepted : 0) };
}

// tiles are the counters of the server: all of them at all times, so that none pushes others away.
const tiles = [
  ['connections', s => count(sum(s.loops, 'conns'))],
  ['accepted per second', (s, r) => count(r.accepted)],
  ['messages per second', (s, r) => count(sum(r.loops, 'messages'))],
  ['received per second', (s, r) => bytes(sum(r.loops, 'in'))],
  ['sent per second', (s, r) => bytes(sum(r.loops, 'out'))],
  ['timers', s => count(sum(s.loops, 'timers'))],
  ['buffered, % of the limit', s => s.buffered.toFixed(0)],
  ['held back', s => count(s.heldBack)],
  ['moved to another loop', s => count(s.moved)],
  ['closed', s => count(s.closed)],
  ['evicted', s => count(s.evicted)],
  ['refused', s => count(s.refused)],
  ['cut', s => count(s.cut)],
  ['panics', s => count(s.panics)],
  ['jobs running', s => count(s.offloaded)],
  ['jobs waiting', s => count(s.offloadWaiting)],
  ['TLS handshakes', s => count(s.handshakes)],
  ['failed handshakes', s => count(s.handshakesFailed)],
];

function showTiles(s, r) {
  fill($('tiles'), tiles.length, i => {
    const t = make('div', undefined, 'tile');
    t.append(make('b'), make('span', tiles[i][0]));
    return t;
  }).forEach((t, i) => put(t.firstChild, tiles[i][1](s, r)));
}

const charts = [
  ['connections', p => p.conns, count],
  ['messages/s', p => p.messages, count],
  ['busiest loop, %', p => p.busy, n => Number.isNaN(n) ? '–' : n.toFixed(0), 100],
  ['worst lag', p => p.lag, duration],
  ['longest turn', p => p.turn, duration],
  ['longest socket wait', p => p.wait, duration],
];

function remember(s, r, at) {
  history.push({ at, conns: sum(s.loops, 'conns'), messages: sum(r.loops, 'messages'), busy: worst(r.loops, 'busy'),
    lag: worst(s.loops, 'lag'), turn: worst(s.loops, 'turn'), wait: worst(s.loops, 'socketWait') });
}

function showHistory(now) {
  while (history.length && history[0].at < now - keep) history.shift();
  const fresh = history.length && now - history.at(-1).at < gap;
  fill($('history'), charts.length, i => {
    const f = make('figure', undefined, 'card'), caption = make('figcaption'), canvas = make('canvas');
    caption.append(make('span', charts[i][0]), make('span'));
    canvas.ariaHidden = 'true';
    f.append(caption, canvas);
    return f;
  }).forEach((figure, i) => {
    const [, value, show, full] = charts[i];
    const points = history.map(p => [p.at, value(p)]).filter(([, v]) => !Number.isNaN(v));
    const top = Math.max(...points.map(([, v]) => v));
    put(figure.querySelector('figcaption').lastChild,
      points.length ? show(fresh ? value(history.at(-1)) : NaN) + ' now, ' + show(top) + ' at most' : '');
    drawLine(figure.querySelector('canvas'), points, now, show, full || nice(Math.max(0, top)));
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

// drawLine draws points of time and value, with a scale on the left and the time below. Where there
// was no point for a while, there is no line.
function drawLine(canvas, points, now, show, top) {
  const [g, width, height] = fit(canvas);
  const left = 52, bottom = height - 16, above = 8;
  const span = [60e3, 120e3, keep].find(n => !points.length || now - points[0][0] <= n) || keep;
  const x = at => width - 1 - (now - at) * (width - 1 - left) / span;
  const y = v => bottom - (bottom - above) * Math.min(v, top) / top;
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
  g.fillText(span / 60e3 + ' min ago', left, height - 2);
  g.strokeStyle = g.fillStyle = color('--main');
  g.lineWidth = 1.5;
  for (let i = 0, j; i < points.length; i = j) { // from one gap to the next
    for (j = i + 1; j < points.length && points[j][0] - points[j - 1][0] < gap; j++);
    g.beginPath();
    for (const [at, v] of points.slice(i, j)) g.lineTo(x(at), y(v));
    g.stroke();
    g.lineTo(x(points[j - 1][0]), bottom);
    g.lineTo(x(points[i][0]), bottom);
    g.globalAlpha = 0.15;
    g.fill();
    g.globalAlpha = 1;
  }
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
  const area = $('loops'), n = s.loops.length;
  const most = Math.max(1, Math.floor((area.clientWidth + 14) / (390 + 14)));
  area.style.setProperty('--columns', Math.ceil(n / Math.ceil(n / most)));
  fill(area, n, () => {
    const card = make('article', undefined, 'card loop'), canvas = make('canvas');
    canvas.ariaHidden = 'true';
    card.append(make('h2'), canvas, make('dl'));
    return card;
  }).forEach((card, i) => {
    const l = s.loops[i], title = card.querySelector('h2');
    put(title, l.answered ? 'loop ' + i : 'loop ' + i + ' does not answer');
    title.className = l.answered ? '' : 'bad';
    const rings = l.rings || last?.loops[i]?.rings || []; // a loop that does not answer keeps its rows
    l.rings = rings;
    const values = [
      ['connections', count(l.conns)], ['messages/s', count(r.loops[i].messages)],
      ['busy', Number.isNaN(r.loops[i].busy) ? '–' : r.loops[i].busy.toFixed(1) + ' %'],
      ['lag', duration(l.lag)], ['longest turn', duration(l.turn)], ['sockets wait', duration(l.socketWait)], ['blocked', count(l.blocked)],
      ['mailbox', count(l.mailbox)], ['fired/s', count(r.loops[i].fired)], ['timers', count(l.timers)],
      ...rings.slice(0, 5).map(ring => ['ring of ' + duration(ring.span * ring.slots), count(ring.timers)]),
      ['outer rings', count(sum(rings.slice(5), 'timers'))]];
    fill(card.querySelector('dl'), values.length, () => {
      const row = make('div');
      row.append(make('dt'), make('dd'));
      return row;
    }).forEach((row, j) => {
      put(row.firstChild, values[j][0]);
      put(row.lastChild, values[j][1]);
    });
    if (rings.length) {
      drawWheel(card.querySelector('canvas'), rings);
      put($('how'), howToRead(rings));
    }
  });
}

// omissible are columns that a phone may leave out, and their classes.
const omissible = { loop: 'loop-number', handler: 'handler', age: 'age' };

function table(title, heads, rows, className = '') {
  const card = make('div', undefined, 'card ' + className);
  const t = make('table'), head = t.createTHead().insertRow(), body = t.createTBody();
  const classes = heads.map(h => omissible[h] || '');
  heads.forEach((h, i) => head.append(make(h ? 'th' : 'td', h, classes[i])));
  for (const row of rows) {
    const tr = body.insertRow();
    row.forEach((cell, i) => {
      const td = tr.insertCell();
      td.className = classes[i];
      td.append(cell);
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

function closer(c) {
  const b = make('button');
  const says = text => { b.textContent = text; b.ariaLabel = `${text} #${c.id} ${c.remote}`; };
  says('close');
  b.onclick = async () => { // it is not disabled, as that would take the focus away
    b.onclick = null;
    const answer = await fetch(`close?loop=${c.loop}&conn=${c.id}`, { method: 'POST' }).catch(e => e);
    says(answer.ok ? 'closed' : answer.status === 404 ? 'gone' : 'failed');
  };
  return b;
}

function showLists(s) {
  const lists = $('lists'), held = lists.children.length && lists.matches(':hover, :focus-within');
  if (!held) lists.ariaLabel = 'Lists as of ' + new Date(s.time).toLocaleTimeString();
  const seen = sum(s.loops, 'seen'), all = sum(s.loops, 'conns');
  put($('seen'), lists.ariaLabel + (held ? ', held still' : '') + (seen < all ? `; ${count(seen)} of ${count(all)} connections are looked at, in turns` : ''));
  if (held) return;
  const conns = (title, list, what, value) => table(title, ['connection', 'loop', 'handler', what, 'age', ...s.readOnly ? [] : ['']],
    list.map(c => ['#' + c.id + ' ' + c.remote, c.loop, c.handler + (c.paused ? ', paused' : ''), value(c), duration(c.age),
      ...s.readOnly ? [] : [closer(c)]]), 'conns');
  const stuck = c => c.pending + c.buffered;
  lists.replaceChildren(
    table('Longest turns of ten minutes', ['took', 'loop', 'ago', 'work', 'connection', 'handler'],
      merged(s, 'slow', t => t.took).map(t => [duration(t.took), t.loop, duration(t.ago), t.work, t.conn ? '#' + t.conn : '', t.handler])),
    conns('Longest silent', merged(s, 'silent', c => c.silent), 'for', c => duration(c.silent)),
    conns('Largest: bytes that wait', merged(s, 'largest', stuck), 'out + in', c => bytes(c.pending) + ' + ' + bytes(c.buffered)),
    conns('Slowest: output does not move', merged(s, 'slowest', c => c.stalled), 'for', c => duration(c.stalled) + ', ' + bytes(c.pending)),
  );
}

function show(s) {
  const now = Date.now(), r = rates(s, now - lastAt < gap ? last : null);
  remember(s, r, now);
  showTiles(s, r);
  showLoops(s, r);
  showLists(s);
  last = s;
  lastAt = now;
  put($('time'), 'at ' + new Date(s.time).toLocaleTimeString());
  put($('state'), '');
}

async function look() {
  if (document.hidden || looking) return;
  looking = true;
  try {
    const answer = await fetch('state', { signal: AbortSignal.timeout(3000) });
    if (!answer.ok) throw new Error(answer.status);
    show(await answer.json());
  } catch {
    put($('state'), 'the server does not answer');
  }
  looking = false;
  showHistory(Date.now());
}

look();
setInterval(look, 1000);
document.addEventListener('visibilitychange', look);
