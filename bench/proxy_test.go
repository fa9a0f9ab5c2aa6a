package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProxy(t *testing.T) {
	for _, at := range []address{{"tcp", "127.0.0.1:0"}, {"unix", filepath.Join(t.TempDir(), "s")}} {
		echo, err := net.Listen(at.network, at.address)
		require.NoError(t, err)
		defer echo.Close()
		go func() {
			for {
				c, err := echo.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(c, c) }()
			}
		}()
		near, p, err := maybeProxied(address{at.network, echo.Addr().String()}, true)
		require.NoError(t, err)
		c, err := net.Dial(near.network, near.address)
		require.NoError(t, err)
		defer c.Close()

		_, err = c.Write([]byte("hello"))
		require.NoError(t, err)
		answer := make([]byte, 5)
		_, err = io.ReadFull(c, answer)
		require.NoError(t, err)
		require.Equal(t, "hello", string(answer))

		p.blackhole()
		_, err = c.Write([]byte("hello"))
		require.NoError(t, err, "writing goes on")
		require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err = c.Read(answer)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "and nothing comes back")

		p.close()
		require.NoError(t, c.SetReadDeadline(time.Time{}))
		_, err = c.Read(answer)
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
}
