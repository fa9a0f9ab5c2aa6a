// Package browsertest has tests of the status page in Debian's chromium. It is a module of its own, since the library
// does not need what drives a browser.
package browsertest
