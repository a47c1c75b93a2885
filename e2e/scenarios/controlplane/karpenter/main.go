// Command karpenter is Karpenter with its provider for tests, which can refuse to launch machines of one architecture.
//
// It launches no machine of FAILING_ARCHITECTURE. If a launch allows another machine, that one is used, as the fleets of clouds
// do. Any other launch fails. With FAILING_BY=capacity, it fails as in Karpenter's provider for AWS after an
// InsufficientInstanceCapacity: for three minutes, such machines are not offered again (UnavailableOfferingsTTL,
// pkg/cache/cache.go). Otherwise it fails with another error, as it does with a wrong node class.
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

// unavailableTime is the time for which a machine is not offered after a launch failed for lack of capacity.
const unavailableTime = 3 * time.Minute

type provider struct {
	cloudprovider.CloudProvider
	failingArchitecture string
	lacksCapacity       bool // otherwise launches fail with another error

	lock             sync.Mutex
	unavailableUntil time.Time
}

// fails returns whether machines of this type cannot be launched.
func (p *provider) fails(instanceType string) bool {
	return p.failingArchitecture != "" && strings.Contains(instanceType, "-"+p.failingArchitecture+"-")
}

func (p *provider) Create(ctx context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	claim = claim.DeepCopy()
	for i := range claim.Spec.Requirements {
		requirement := &claim.Spec.Requirements[i]
		if requirement.Key != corev1.LabelInstanceTypeStable {
			continue
		}
		requirement.Values = lo.Reject(requirement.Values, func(name string, _ int) bool { return p.fails(name) })
		switch {
		case len(requirement.Values) > 0:
		case p.lacksCapacity:
			p.lock.Lock()
			defer p.lock.Unlock()
			p.unavailableUntil = time.Now().Add(unavailableTime)
			return nil, cloudprovider.NewInsufficientCapacityError(errors.New("there are no such machines now"))
		default:
			return nil, errors.New("such machines cannot be launched")
		}
	}
	return p.CloudProvider.Create(ctx, claim)
}

func (p *provider) GetInstanceTypes(ctx context.Context, pool *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	types, err := p.CloudProvider.GetInstanceTypes(ctx, pool)
	p.lock.Lock()
	defer p.lock.Unlock()
	if time.Now().After(p.unavailableUntil) {
		return types, err
	}
	return lo.Map(types, func(original *cloudprovider.InstanceType, _ int) *cloudprovider.InstanceType {
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
	failing := &provider{
		CloudProvider:       kwok.NewCloudProvider(ctx, op.GetClient(), types),
		failingArchitecture: os.Getenv("FAILING_ARCHITECTURE"),
		lacksCapacity:       os.Getenv("FAILING_BY") == "capacity",
	}
	start(ctx, op, failing)
}
