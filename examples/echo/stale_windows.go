package main

// lock does nothing: SIGHUP, and so a successor, is unknown here.
func lock(string) (unlock func()) { return func() {} }
