// Package pages tests the pages of the main module in a browser: the chat of examples/, and the
// live page of loop/loopmetrics. It makes the pictures of README.md.
package pages
