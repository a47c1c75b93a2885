//go:build karpenter_1_14

package main

import (
	"context"

	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

// start runs Karpenter 1.14 with this provider, in the same way as Karpenter's kwok/main.go does.
func start(ctx context.Context, op *operator.Operator, failing *provider) {
	decorated := overlay.Decorate(failing, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated)
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, decorated, failing, cluster, op.InstanceTypeStore,
	)...).Start(ctx)
}
