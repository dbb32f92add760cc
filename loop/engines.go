package loop

// An Engine is what moves the bytes of a Server.
type Engine uint8

const (
	// EngineDefault is gnet where it runs, which is Linux, macOS and the BSDs, and EngineNet
	// elsewhere.
	EngineDefault Engine = iota

	// EngineNet is Go's own net: everything works, at the price of one or two goroutines for each
	// connection. It is for systems without another engine, for finding out whether a fault is the
	// engine's, and for comparisons.
	EngineNet
)
