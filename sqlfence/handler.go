package sqlfence

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/etcdlock/locks/etcdlock"
)

// TokenHeader is the header of a request that has the fencing token of its sender's hold, in decimal digits:
//
//	r.Header.Set(sqlfence.TokenHeader, fmt.Sprint(hold.Token()))
const TokenHeader = "Etcdlock-Token"

// Handler calls next only for requests whose token fence admits. Others are answered with 409 (Conflict) if the token
// is stale, and with 400 (Bad Request) if it is missing or no number. Requests of one fence run one after another. So
// no request of an earlier holder is in progress when one of a later holder begins.
//
// fence returns the Fence of a request, or nil if the request needs none, such as a read. A Fence is for one process
// that serves the resource, and its tokens are lost with the process. If there are several processes, or a database,
// use [Admit].
func Handler(next http.Handler, fence func(*http.Request) *etcdlock.Fence) http.Handler {
	if next == nil || fence == nil {
		panic("sqlfence: Handler needs a handler and a function that returns the fence")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := fence(r)
		if f == nil {
			next.ServeHTTP(w, r)
			return
		}
		token, err := strconv.ParseInt(r.Header.Get(TokenHeader), 10, 64)
		if err != nil {
			http.Error(w, "the header "+TokenHeader+" must be a fencing token", http.StatusBadRequest)
			return
		}
		err = f.Do(etcdlock.Token(token), func() error {
			next.ServeHTTP(w, r)
			return nil
		})
		if errors.Is(err, etcdlock.ErrStale) {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
}
