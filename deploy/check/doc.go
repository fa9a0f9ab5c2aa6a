// Package check is a test suite for the files in deploy/. It decodes the manifests strictly, has systemd verify the
// units, and builds the program of the Dockerfile. It runs the commands in all of these files as processes against an
// embedded etcd. Images, Kubernetes and systemd itself are not run.
//
// It is a module of its own, so that neither the library nor the tool has Kubernetes among its requirements.
package check
