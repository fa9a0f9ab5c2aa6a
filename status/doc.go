// Package status has the forms in which locks are shown to programs as JSON.
package status
