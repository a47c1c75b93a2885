// Command karpenter is Karpenter with its provider for tests, of whose machines those of one architecture may be out of stock.
//
// Of FAILING_ARCHITECTURE no machine can be launched. A launch that could take another machine takes it, as the fleets of clouds do. One that
// could not fails: with FAILING_BY=capacity as Karpenter's provider for AWS answers an InsufficientInstanceCapacity, which does not offer
// the machine again for three minutes (UnavailableOfferingsTTL, pkg/cache/cache.go); otherwise by another error, as where a node class is wrong.
package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator"
)

const unavailable = 3 * time.Minute

type provider struct {
	cloudprovider.CloudProvider
	architecture string
	isScarce     bool

	lock  sync.Mutex
	until time.Time
}

func (p *provider) fails(instanceType string) bool {
	return p.architecture != "" && strings.Contains(instanceType, "-"+p.architecture+"-")
}

func (p *provider) Create(ctx context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	claim = claim.DeepCopy()
	for i := range claim.Spec.Requirements {
		wanted := &claim.Spec.Requirements[i]
		if wanted.Key != corev1.LabelInstanceTypeStable {
			continue
		}
		wanted.Values = lo.Reject(wanted.Values, func(name string, _ int) bool { return p.fails(name) })
		switch {
		case len(wanted.Values) > 0:
		case p.isScarce:
			p.lock.Lock()
			defer p.lock.Unlock()
			p.until = time.Now().Add(unavailable)
			return nil, cloudprovider.NewInsufficientCapacityError(errors.New("there are no such machines now"))
		default:
			return nil, errors.New("such machines cannot be launched")
		}
	}
	return p.CloudProvider.Create(ctx, claim)
}

func (p *provider) GetInstanceTypes(ctx context.Context, pool *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	all, err := p.CloudProvider.GetInstanceTypes(ctx, pool)
	p.lock.Lock()
	defer p.lock.Unlock()
	if time.Now().After(p.until) {
		return all, err
	}
	return lo.Map(all, func(known *cloudprovider.InstanceType, _ int) *cloudprovider.InstanceType {
		own := &cloudprovider.InstanceType{}
		known.DeepCopyInto(own)
		for _, offering := range own.Offerings {
			offering.Available = offering.Available && !p.fails(own.Name)
		}
		return own
	}), err
}

func main() {
	ctx, op := operator.NewOperator()
	types, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "the instance types cannot be read")
		os.Exit(1)
	}
	own := &provider{
		CloudProvider: kwok.NewCloudProvider(ctx, op.GetClient(), types),
		architecture:  os.Getenv("FAILING_ARCHITECTURE"),
		isScarce:      os.Getenv("FAILING_BY") == "capacity",
	}
	start(ctx, op, own)
}
