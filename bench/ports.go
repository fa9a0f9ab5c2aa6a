package main

import "net"

// freePorts finds as many ports of the loopback interface. One may be taken by somebody
// else before it is used; then the server that was to have it exits and is reported absent.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		// Only when all are found, lest one is found twice.
		defer func() { _ = l.Close() }()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
