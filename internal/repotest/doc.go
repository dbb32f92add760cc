// Package repotest has the tests of the repository as a whole: its documents, what its packages
// import, and what its files may be.
package repotest
