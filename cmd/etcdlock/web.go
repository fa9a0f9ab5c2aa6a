package main

import (
	"context"
	"net"
	"net/http"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/etcdlock/locks/status"
)

func newWeb(c *connection) *cobra.Command {
	var address, title string
	var hosts []string
	cmd := &cobra.Command{
		Use:   "web",
		Short: "Serve a web page that shows all locks",
		Long: `Web serves a page that shows every lock that ls lists, those that need attention first, and updates itself. A
lock's name is a link to its holders and waiters with their leases. /api/ has what "ls -o json" prints, and
/api/lock?name=NAME what "inspect -o json" prints. The page only reads.

It does not authenticate: any program that reaches the address can read the page, so the default is one of this
machine alone. There it answers only requests for localhost or a loopback address, so that no page of another site can
read it by a name of its own. A reverse proxy that passes another host name on needs --allow-host.

While the page has viewers, one watch gets the events of the whole namespace. A signal ends it, with the exit
code 0.`,
		Example: `  etcdlock web
  etcdlock web --http 127.0.0.1:8080 --title "Locks of the shop" --allow-host locks.example.com`,
		Args: mistakes(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts := []status.Option{status.WithTitle(title)}
			switch {
			case c.prefix:
				opts = append(opts, status.AtPrefix())
			default:
				opts = append(opts, status.WithNamespace(c.namespace))
			}
			return c.web(cmd.Context(), address, hosts, opts)
		},
	}
	cmd.Flags().StringVar(&address, "http", "127.0.0.1:8379", "`address` to serve the page at")
	cmd.Flags().StringVar(&title, "title", "Locks", "title of the page")
	cmd.Flags().StringArrayVar(&hosts, "allow-host", nil, "host `name` by which the page is asked for; may be given several times")
	return cmd
}

// web serves the page until a signal.
func (c *connection) web(ctx context.Context, address string, hosts []string, opts []status.Option) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client, err := c.lastingClient(ctx)
	if client == nil {
		return err
	}
	defer closeClient(client)
	page := status.New(client, opts...)
	defer page.Close()
	defer context.AfterFunc(ctx, page.Close)() // which ends streams
	var h http.Handler = page
	if isLocal(address) {
		h = onlyFor(page, hosts)
	} else {
		say("any program that reaches %s can read the page: it does not authenticate", address)
	}
	return serve(ctx, address, "locks at http://%s/", h)
}

// isLocal reports whether only this machine can reach an address.
func isLocal(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return isLoopback(host)
}

func isLoopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// onlyFor refuses requests for other hosts: a site may have its own name lead to this machine, and read what a browser
// here can read.
func onlyFor(h http.Handler, hosts []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host // without a port
		}
		if !isLoopback(strings.Trim(host, "[]")) && !slices.Contains(hosts, host) {
			http.Error(w, "this page is for localhost; see etcdlock web --allow-host", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
