// Command coredns is CoreDNS with only the plugins that kubeadm's Corefile names.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	// A query passes through the plugins in this order, that of CoreDNS's plugin.cfg.
	dnsserver.Directives = []string{
		"reload", "ready", "health", "prometheus", "errors", "loop", "cache", "loadbalance", "kubernetes", "forward",
	}
	coremain.Run()
}
