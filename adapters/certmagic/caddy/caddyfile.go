package caddylock

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

var _ caddyfile.Unmarshaler = (*Storage)(nil)

// UnmarshalCaddyfile reads
//
//	storage etcdlock [<endpoints...>] {
//		endpoints <endpoints...>
//		prefix    <prefix>
//		username  <name>
//		password  <password>
//		ca_cert   <file>
//		cert      <file>
//		key       <file>
//		ttl       <duration>
//	}
func (s *Storage) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name of the module
	s.Endpoints = append(s.Endpoints, d.RemainingArgs()...)
	texts := map[string]*string{
		"prefix": &s.Prefix, "username": &s.Username, "password": &s.Password,
		"ca_cert": &s.CACert, "cert": &s.Cert, "key": &s.Key,
	}
	for d.NextBlock(0) {
		option, args := d.Val(), d.RemainingArgs()
		text := texts[option]
		switch {
		case option == "endpoints" && len(args) > 0:
			s.Endpoints = append(s.Endpoints, args...)
		case text == nil && option != "ttl" && option != "endpoints":
			return d.Errf("unrecognized option %q", option)
		case len(args) != 1:
			return d.ArgErr()
		case option == "ttl":
			ttl, err := caddy.ParseDuration(args[0])
			if err != nil {
				return d.WrapErr(err)
			}
			s.TTL = caddy.Duration(ttl)
		default:
			*text = args[0]
		}
	}
	return nil
}
