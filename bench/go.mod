module github.com/loopwheel/loopwheel/bench

go 1.26

require github.com/loopwheel/loopwheel v0.0.0

replace github.com/loopwheel/loopwheel => ../
