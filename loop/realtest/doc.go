// Package realtest is the tests of package loop that need the real thing: sockets, processes,
// signals, the limits of the system. What can be shown on memory and in virtual time is tested
// beside the code.
//
// They have one rig: start and dial for servers of this process, startChild and startPuppet for
// those of another one. Some need minutes, or much of the machine; LOOPWHEEL_SLOW=1 enables them.
// docs/reliability.md says what the suites named TestFault show.
package realtest
