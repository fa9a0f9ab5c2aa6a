package embedtest

import (
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const logLines = 2000

// logBuffer keeps the last lines that the members and the clients logged.
type logBuffer struct {
	encoder zapcore.Encoder

	mu    sync.Mutex
	lines [logLines]string
	count int
}

func newLogBuffer() *logBuffer {
	cfg := zap.NewDevelopmentEncoderConfig()
	cfg.CallerKey, cfg.StacktraceKey = zapcore.OmitKey, zapcore.OmitKey
	return &logBuffer{encoder: zapcore.NewConsoleEncoder(cfg)}
}

// logger returns a logger that writes into the buffer. A fatal entry ends the
// goroutine that logged it: zap's default would end the whole test process.
func (b *logBuffer) logger(name string) *zap.Logger {
	core := zapcore.NewCore(b.encoder, b, zapcore.InfoLevel)
	return zap.New(core, zap.WithFatalHook(zapcore.WriteThenGoexit)).Named(name)
}

// Write is called by zap, once for each entry.
func (b *logBuffer) Write(entry []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines[b.count%logLines] = string(entry)
	b.count++
	return len(entry), nil
}

// Sync has nothing to do; zap asks for it.
func (b *logBuffer) Sync() error { return nil }

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	for i := max(0, b.count-logLines); i < b.count; i++ {
		text.WriteString(b.lines[i%logLines])
	}
	return text.String()
}
