// Package repotest has the tests of the repository as a whole: its documents, and what its packages
// import.
package repotest
