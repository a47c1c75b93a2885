// Command karpenter is Karpenter with its provider for tests. Machines of one architecture may be out of stock.
//
// No machine of FAILING_ARCHITECTURE can be launched. A launch that allows another machine uses that one, as the fleets of
// clouds do. Any other launch fails. With FAILING_BY=capacity it fails as in Karpenter's provider for AWS after an
// InsufficientInstanceCapacity: the machine is not offered again for three minutes (UnavailableOfferingsTTL,
// pkg/cache/cache.go). Otherwise it fails with another error, as with a wrong node class.
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

// unavailable is how long a machine that is out of stock is not offered.
const unavailable = 3 * time.Minute

type provider struct {
	cloudprovider.CloudProvider
	architecture string
	// isScarce means that launches fail for lack of capacity.
	isScarce bool

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
	return lo.Map(all, func(original *cloudprovider.InstanceType, _ int) *cloudprovider.InstanceType {
		copied := &cloudprovider.InstanceType{}
		original.DeepCopyInto(copied)
		for _, offering := range copied.Offerings {
			offering.Available = offering.Available && !p.fails(copied.Name)
		}
		return copied
	}), err
}

func main() {
	ctx, op := operator.NewOperator()
	types, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "the instance types cannot be read")
		os.Exit(1)
	}
	scarce := &provider{
		CloudProvider: kwok.NewCloudProvider(ctx, op.GetClient(), types),
		architecture:  os.Getenv("FAILING_ARCHITECTURE"),
		isScarce:      os.Getenv("FAILING_BY") == "capacity",
	}
	start(ctx, op, scarce)
}
