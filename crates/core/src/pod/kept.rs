//! What a decoded Pod takes of memory, and how it does without the bytes that it was read from, while it waits.
//!
//! Of a large review, most is nothing that a decision needs; lists may be much larger decoded than as JSON (`{}`).

use super::json::Annotations;
use super::{
    AppliedLists, Container, Labels, Metadata, Os, Own, Owner, Pod, SecretName, Spec, Text, Toleration,
    Usage, Volume, VolumeImage,
};
use tolerarch_text::json::{First, List, Object, Unread};

/// Bytes for each image beside its text, while it is looked up: its usage, and what makes its text a full reference.
const USAGE: usize = size_of::<Usage<'_>>() + 96;

/// A part of a decoded Pod.
trait Kept {
    type Owned;
    fn into_owned(self) -> Self::Owned;
    /// Bytes of it that are elsewhere: texts, wherever they are, and items of lists.
    fn held(&self) -> usize;
}

impl Pod<'_> {
    /// The same, without the bytes that it was read from.
    pub(crate) fn into_owned(self) -> Pod<'static> {
        Kept::into_owned(self)
    }

    /// Bytes that it holds while it waits, or a few more.
    pub fn held(&self) -> usize {
        let spec = self.spec.as_ref();
        let length = |list: Option<usize>| list.unwrap_or_default();
        let images = spec.map_or(0, |spec| {
            length(spec.containers.as_ref().map(|list| list.len()))
                + length(spec.init_containers.as_ref().map(|list| list.len()))
                + length(spec.volumes.as_ref().map(|list| list.len()))
        });
        Kept::held(self) + images * USAGE
    }
}

impl Own<'_> {
    pub(super) fn into_owned(self) -> Own<'static> {
        Kept::into_owned(self)
    }
}

impl Text<'_> {
    pub(crate) fn into_owned(self) -> Text<'static> {
        String::from(self).into()
    }
}

impl Kept for Text<'_> {
    type Owned = Text<'static>;
    fn into_owned(self) -> Text<'static> {
        self.into_owned()
    }
    fn held(&self) -> usize {
        self.as_str().len()
    }
}

impl Kept for Unread<'_> {
    type Owned = Unread<'static>;
    fn into_owned(self) -> Unread<'static> {
        self.into_owned()
    }
    fn held(&self) -> usize {
        self.size()
    }
}

impl<T: Kept> Kept for Option<T> {
    type Owned = Option<T::Owned>;
    fn into_owned(self) -> Self::Owned {
        self.map(T::into_owned)
    }
    fn held(&self) -> usize {
        self.as_ref().map_or(0, T::held)
    }
}

impl<T: Kept> Kept for Vec<T> {
    type Owned = Vec<T::Owned>;
    fn into_owned(self) -> Self::Owned {
        self.into_iter().map(T::into_owned).collect()
    }
    fn held(&self) -> usize {
        self.capacity() * size_of::<T>() + self.iter().map(T::held).sum::<usize>()
    }
}

impl<A: Kept, B: Kept> Kept for (A, B) {
    type Owned = (A::Owned, B::Owned);
    fn into_owned(self) -> Self::Owned {
        (self.0.into_owned(), self.1.into_owned())
    }
    fn held(&self) -> usize {
        self.0.held() + self.1.held()
    }
}

/// Structs around one value.
macro_rules! kept_around {
    ($($name:ident<T $(, $n:ident)?>)*) => {$(
        impl<T: Kept $(, const $n: usize)?> Kept for $name<T $(, $n)?> {
            type Owned = $name<T::Owned $(, $n)?>;
            fn into_owned(self) -> Self::Owned {
                $name(self.0.into_owned())
            }
            fn held(&self) -> usize {
                self.0.held()
            }
        }
    )*};
}

kept_around! { Object<T> List<T, N> First<T, N> }

/// Values that hold nothing beside themselves.
macro_rules! kept_itself {
    ($($name:ty),*) => {$(
        impl Kept for $name {
            type Owned = Self;
            fn into_owned(self) -> Self {
                self
            }
            fn held(&self) -> usize {
                0
            }
        }
    )*};
}

kept_itself!(bool, usize, i64, AppliedLists);

/// Structs, with all their fields.
macro_rules! kept {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl Kept for $name<'_> {
            type Owned = $name<'static>;
            fn into_owned(self) -> Self::Owned {
                $name { $($field: Kept::into_owned(self.$field)),* }
            }
            fn held(&self) -> usize {
                0 $(+ Kept::held(&self.$field))*
            }
        }
    )*};
}

kept! {
    Pod { metadata, spec, bytes, template_of, applied }
    Metadata { name, generate_name, owner_references, labels, annotations }
    Owner { kind, name, controller }
    Labels { own, all }
    Own { mode, prefer }
    Annotations { count, bytes, mode, pools, required, preferred, prefer, reason, mirror }
    Spec { node_name, os, node_selector, affinity, containers, init_containers, volumes, image_pull_secrets, tolerations }
    Os { name }
    Container { image, image_pull_policy }
    Volume { image }
    VolumeImage { reference, pull_policy }
    SecretName { name }
    Toleration { key, operator, value, effect, toleration_seconds }
}
