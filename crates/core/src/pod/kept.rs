//! Memory of a decoded Pod, and its copy without the bytes that it was read from, for the time in which it waits. Most
//! of a large review is nothing that a decision needs. Lists may be much larger decoded than as JSON (`{}`).

use super::keys::{Labels, Member, Picked};
use super::{Container, Metadata, Named, Owner, Pod, Spec, Text, Toleration, Usage, Volume, VolumeImage};
use tolerarch_text::json::Unread;

/// Bytes for each image beside its text, while it is looked up: its usage, and the rest of the full reference.
const USAGE: usize = size_of::<Usage<'_>>() + 96;

/// A value that may have to wait: a decoded Pod, its parts, and types that hold one.
pub trait Kept {
    type Owned;
    fn into_owned(self) -> Self::Owned;
    /// Returns the bytes that the value holds elsewhere, or a few more: texts, borrowed or owned, and items of lists.
    fn held(&self) -> usize;
}

impl Kept for Text<'_> {
    type Owned = Text<'static>;
    fn into_owned(self) -> Text<'static> {
        String::from(self).into()
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

/// Implements [`Kept`] for structs: their fields, behind a semicolon those that hold nothing elsewhere, and optionally
/// bytes that each struct holds beside them.
macro_rules! kept {
    ($($name:ident { $($field:ident),* $(; $($plain:ident),*)? } $(+ $more:ident)?)*) => {$(
        impl Kept for $name<'_> {
            type Owned = $name<'static>;
            fn into_owned(self) -> Self::Owned {
                $name { $($field: Kept::into_owned(self.$field),)* $($($plain: self.$plain),*)? }
            }
            fn held(&self) -> usize {
                0 $(+ Kept::held(&self.$field))* $(+ $more)?
            }
        }
    )*};
}
pub(crate) use kept;

kept! {
    Pod { metadata, spec, template_of; bytes, applied }
    Metadata { name, generate_name, owner_references, labels, annotations; is_there }
    Owner { kind, name; controller }
    Labels { own, all }
    Picked { members; count, bytes }
    Member { text; key }
    Spec { node_name, os, node_selector, affinity, containers, init_containers, volumes, image_pull_secrets, tolerations }
    Named { name }
    Container { image, image_pull_policy } + USAGE
    Volume { image } + USAGE
    VolumeImage { reference, pull_policy }
    Toleration { key, operator, value, effect; toleration_seconds }
}
