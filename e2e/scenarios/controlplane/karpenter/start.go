//go:build !karpenter_1_14

package main

import (
	"context"

	"github.com/samber/lo"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

// start runs Karpenter 1.15 with this provider, in the same way as Karpenter's kwok/main.go does.
func start(ctx context.Context, op *operator.Operator, failing *provider) {
	decorated := overlay.Decorate(failing, op.GetClient(), op.InstanceTypeStore)
	policies := lo.Must(health.NewRepairPolicyMatcher(ctx, decorated))
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated, state.WithRepairPolicyMatcher(policies))
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, decorated, failing, cluster, op.InstanceTypeStore, op.PredictionStore,
	)...).Start(ctx)
}
