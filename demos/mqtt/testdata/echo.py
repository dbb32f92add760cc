# Subscribes, publishes and prints what it gets: python3 echo.py tcp|websockets PORT CAFILE VERSION
import sys
import paho.mqtt.client as mqtt

transport, port, ca, version = sys.argv[1:]
client = mqtt.Client("python", transport=transport.removesuffix("+tls"), protocol=int(version))
if transport.endswith("+tls"):
    client.tls_set(ca)
client.on_connect = lambda c, *_: c.subscribe("py/+", 2)
client.on_subscribe = lambda c, *_: c.publish("py/x", "hello", 2)


def on_message(c, _, m):
    print(m.topic, m.payload.decode())
    c.disconnect()


client.on_message = on_message
client.connect("127.0.0.1", int(port))
client.loop_forever()
