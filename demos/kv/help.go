package main

import (
	"strings"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// help answers with lines, under a head that names the command, which is the first word.
func help(text string) func(*session, [][]byte) {
	name, text, _ := strings.Cut(text, "\n")
	lines := []string{name + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
	lines = append(lines, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	lines = append(lines, "HELP", "    Prints this help.")
	out := resp.AppendArray(nil, len(lines))
	for _, line := range lines {
		out = resp.AppendSimple(out, line)
	}
	return func(s *session, _ [][]byte) { s.write(out) }
}

const configHelp = `CONFIG
GET <pattern>
    Return parameters matching the glob-like <pattern> and their values.
SET <directive> <value>
    Set the configuration <directive> to <value>.
RESETSTAT
    Reset statistics reported by the INFO command.
REWRITE
    Rewrite the configuration file.
`

const slowlogHelp = `SLOWLOG
GET [<count>]
    Return top <count> entries from the slowlog (default: 10, -1 mean all).
    Entries are made of:
    id, timestamp, time in microseconds, arguments array, client IP and port,
    client name
LEN
    Return the length of the slowlog.
RESET
    Reset the slowlog.
`

const commandHelp = `COMMAND
(no subcommand)
    Return details about all commands.
COUNT
    Return the total number of commands in this server.
INFO [<command-name> ...]
    Return details about multiple commands.
GETKEYS <full-command>
    Return the keys from a full command.
`

const clientHelp = `CLIENT
GETNAME
    Return the name of the current connection.
ID
    Return the ID of the current connection.
INFO
    Return information about the current client connection.
KILL <ip:port>
    Kill connection made from <ip:port>.
KILL <option> <value> [<option> <value> [...]]
    Kill connections. Options are:
    * ADDR <ip:port>
      Kill connections made from the specified address
    * ID <client-id>
      Kill the connection with that ID.
    * SKIPME (YES|NO)
      Skip killing current connection (default: yes).
LIST [options ...]
    Return information about client connections. Options:
    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
      Return clients of specified type.
    * ID <client-id> [<client-id> ...]
      Return the clients with these IDs.
NO-EVICT (ON|OFF)
    Changes nothing: no key is evicted here, and no client.
NO-TOUCH (ON|OFF)
    Changes nothing: no key has a time of use here.
REPLY (ON|OFF|SKIP)
    Control the replies sent to the current connection.
SETINFO <option> <value>
    Changes nothing: what a client says of its library is not kept.
SETNAME <name>
    Assign the name <name> to the current connection.
UNBLOCK <clientid> [TIMEOUT|ERROR]
    Unblock the specified blocked client.
`

const pubsubHelp = `PUBSUB
CHANNELS [<pattern>]
    Return the currently active channels matching a <pattern> (default: '*').
NUMPAT
    Return number of subscriptions to patterns.
NUMSUB [<channel> ...]
    Return the number of subscribers for the specified channels, excluding
    pattern subscriptions(default: no channels).
`
