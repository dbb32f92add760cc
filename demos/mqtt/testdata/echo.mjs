// Subscribes, publishes and prints what it gets: node echo.mjs URL CAFILE VERSION
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
const mqtt = createRequire(new URL('./npm/', import.meta.url))('mqtt')
const [url, ca, version] = process.argv.slice(2)
const client = mqtt.connect(url, { ca: readFileSync(ca), protocolVersion: Number(version), clientId: 'js-' + process.pid })
client.on('error', (err) => { console.error(err); process.exit(1) })
client.on('message', (topic, payload) => { console.log(topic, String(payload)); client.end() })
client.subscribe('js/+', { qos: 2 }, () => client.publish('js/x', 'hello', { qos: 2 }))
