// Package check is a test suite for what is in deploy/: it decodes the manifests strictly, has systemd verify the
// units, builds what the Dockerfile builds, and runs the commands that stand in all of these as processes against an
// embedded etcd. Images, Kubernetes and systemd itself are not run.
//
// It is a module of its own, so that neither the library nor the tool has Kubernetes among its requirements.
package check
