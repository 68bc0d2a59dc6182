module faults

go 1.26.6

require (
	github.com/VictoriaMetrics/VictoriaMetrics v1.150.0
	github.com/grandecola/bigqueue v0.6.0
	github.com/nsqio/go-diskqueue v1.1.0
)

require (
	github.com/VictoriaMetrics/metrics v1.44.0 // indirect
	github.com/VictoriaMetrics/metricsql v0.87.3 // indirect
	github.com/grandecola/mmap v0.7.0 // indirect
	github.com/klauspost/compress v1.19.1 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fastrand v1.1.0 // indirect
	github.com/valyala/gozstd v1.25.0 // indirect
	github.com/valyala/histogram v1.2.0 // indirect
	github.com/valyala/quicktemplate v1.8.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
