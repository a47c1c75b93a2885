package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/restmapper"
	clienttesting "k8s.io/client-go/testing"
)

// A Served is what an API server serves, with the resource that kubectl finds by each of several names.
type Served struct {
	Groups []ServedGroup `json:"groups"`
	Names  []NamedKind   `json:"names"`
}

// A ServedGroup has the resources of each of its versions.
type ServedGroup struct {
	Name      string            `json:"name"`
	Preferred string            `json:"preferred"`
	Versions  []ServedResources `json:"versions"`
}

// ServedResources are the resources of one version.
type ServedResources struct {
	Version   string           `json:"version"`
	Resources []ServedResource `json:"resources"`
}

// A ServedResource has the names by which kubectl finds it.
type ServedResource struct {
	Name       string   `json:"name"`
	Singular   string   `json:"singularName"`
	Kind       string   `json:"kind"`
	ShortNames []string `json:"shortNames,omitempty"`
}

// A NamedKind is a name with the resource that kubectl finds by it, such as "v1alpha1/gadgets.example.com", or none.
type NamedKind struct {
	Name string `json:"name"`
	Is   string `json:"is,omitempty"`
}

func kinds(r *rand.Rand, random int) []Served {
	var all []Served
	for range 101 + random/20 {
		all = append(all, randomServed(r))
	}
	return all
}

func randomServed(r *rand.Rand) Served {
	groups := []string{"apps", "apps.example.com", "batch", "batch.volcano.sh", "example.com", "example.com.au", "io"}
	r.Shuffle(len(groups), func(a, b int) { groups[a], groups[b] = groups[b], groups[a] })
	server := Served{Groups: []ServedGroup{randomGroup(r, "", []string{"v1"})}}
	for _, name := range groups[:1+r.IntN(3)] {
		versions := []string{"v1", "v1beta1", "v1alpha1", "v2"}
		r.Shuffle(len(versions), func(a, b int) { versions[a], versions[b] = versions[b], versions[a] })
		server.Groups = append(server.Groups, randomGroup(r, name, versions[:1+r.IntN(2)]))
	}
	mapper := mapperOf(server.Groups)
	for _, name := range randomNames(r, server.Groups) {
		server.Names = append(server.Names, NamedKind{name, mappingFor(mapper, name)})
	}
	return server
}

// singularNames are singular names of resources.
var singularNames = []string{"web", "job", "thing", "my-part", "gadget", "wd", "gd"}

func randomGroup(r *rand.Rand, name string, versions []string) ServedGroup {
	group := ServedGroup{Name: name, Preferred: pick(r, versions...)}
	for _, version := range versions {
		isUsed := map[string]bool{}
		served := ServedResources{Version: version, Resources: []ServedResource{}}
		for range r.IntN(3) + 1 {
			singular := pick(r, singularNames...)
			if isUsed[singular] {
				continue
			}
			isUsed[singular] = true
			kind := strings.ToUpper(singular[:1]) + strings.ReplaceAll(singular[1:], "-p", "P")
			resource := ServedResource{Name: singular + "s", Singular: singular, Kind: kind}
			if chance(r, 15) {
				resource.Singular = ""
			}
			for range r.IntN(3) {
				resource.ShortNames = append(resource.ShortNames, pick(r, "wd", "gd", "th", "webs", "j"))
			}
			served.Resources = append(served.Resources, resource)
			if chance(r, 30) {
				served.Resources = append(served.Resources, ServedResource{Name: singular + "s/scale", Kind: "Scale"})
			}
		}
		group.Versions = append(group.Versions, served)
	}
	return group
}

// randomNames returns names by which a user may mean a resource, complete and abbreviated.
func randomNames(r *rand.Rand, groups []ServedGroup) []string {
	var names []string
	for range 14 {
		group := groups[r.IntN(len(groups))]
		version := group.Versions[r.IntN(len(group.Versions))]
		if chance(r, 20) {
			group = groups[r.IntN(len(groups))]
		}
		resource := version.Resources[0]
		word := pick(r, append([]string{resource.Name, resource.Kind, strings.ToLower(resource.Kind), pick(r, singularNames...), "th", "j"}, resource.ShortNames...)...)
		name := word
		switch r.IntN(6) {
		case 0, 1:
		case 2:
			name += "." + group.Name
		case 3:
			name += "." + group.Name[:r.IntN(len(group.Name)+1)]
		default:
			name += "." + pick(r, version.Version, version.Version, "v1", "v3") + "." + group.Name
		}
		// Before it sends a request, tolerarch refuses a name with an empty part or with a dot after a shortened group.
		if !strings.Contains(name, "..") && (!strings.HasSuffix(name, ".") || strings.Count(name, ".") == 2) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// mapperOf returns the mapper that kubectl would use with these groups.
func mapperOf(groups []ServedGroup) meta.RESTMapper {
	var groupResources []*restmapper.APIGroupResources
	server := &fake.FakeDiscovery{Fake: &clienttesting.Fake{}}
	for _, group := range groups {
		resources := &restmapper.APIGroupResources{VersionedResources: map[string][]metav1.APIResource{}}
		resources.Group = metav1.APIGroup{Name: group.Name, PreferredVersion: metav1.GroupVersionForDiscovery{Version: group.Preferred}}
		for _, version := range group.Versions {
			groupVersion := schema.GroupVersion{Group: group.Name, Version: version.Version}.String()
			resources.Group.Versions = append(resources.Group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: groupVersion, Version: version.Version})
			list := &metav1.APIResourceList{GroupVersion: groupVersion}
			for _, resource := range version.Resources {
				list.APIResources = append(list.APIResources, metav1.APIResource{
					Name:         resource.Name,
					SingularName: resource.Singular,
					Kind:         resource.Kind,
					ShortNames:   resource.ShortNames,
					Namespaced:   true,
				})
			}
			resources.VersionedResources[version.Version] = list.APIResources
			server.Resources = append(server.Resources, list)
		}
		groupResources = append(groupResources, resources)
	}
	return restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groupResources), server, nil)
}

// mappingFor copies the unexported function of this name in cli-runtime.
func mappingFor(mapper meta.RESTMapper, name string) string {
	full, short := schema.ParseResourceArg(name)
	var kind schema.GroupVersionKind
	if full != nil {
		kind, _ = mapper.KindFor(*full)
	}
	if kind.Empty() {
		kind, _ = mapper.KindFor(short.WithVersion(""))
	}
	var mapping *meta.RESTMapping
	var err error
	if !kind.Empty() {
		mapping, err = mapper.RESTMapping(kind.GroupKind(), kind.Version)
	} else {
		fullKind, shortKind := schema.ParseKindArg(name)
		if fullKind == nil {
			withoutVersion := shortKind.WithVersion("")
			fullKind = &withoutVersion
		}
		mapping, err = mapper.RESTMapping(fullKind.GroupKind(), fullKind.Version)
		if err != nil {
			mapping, err = mapper.RESTMapping(shortKind)
		}
	}
	if err != nil {
		return ""
	}
	resource := mapping.Resource
	return fmt.Sprintf("%s/%s.%s", resource.Version, resource.Resource, resource.Group)
}
