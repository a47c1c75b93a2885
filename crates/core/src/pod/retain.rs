//! The memory of a decoded Pod, and its copy without the bytes that it was read from, for the time in which the Pod waits.
//! A decision needs only a small part of most large reviews. A decoded list may take much more memory than its JSON (`{}`).

use std::borrow::Cow;

/// A value that may have to wait: a decoded Pod, a part of one, or a type that contains one.
pub trait Retain {
    type Owned;
    fn into_owned(self) -> Self::Owned;
    /// Returns the bytes that the value holds outside itself, or a few more: texts, borrowed or owned, and items of lists.
    fn held_bytes(&self) -> usize;
}

impl Retain for Cow<'_, str> {
    type Owned = Cow<'static, str>;
    fn into_owned(self) -> Cow<'static, str> {
        self.into_owned().into()
    }
    fn held_bytes(&self) -> usize {
        self.len()
    }
}

impl<T: Retain> Retain for Option<T> {
    type Owned = Option<T::Owned>;
    fn into_owned(self) -> Self::Owned {
        self.map(T::into_owned)
    }
    fn held_bytes(&self) -> usize {
        match self {
            Some(value) => value.held_bytes(),
            None => 0,
        }
    }
}

impl<T: Retain> Retain for Vec<T> {
    type Owned = Vec<T::Owned>;
    fn into_owned(self) -> Self::Owned {
        self.into_iter().map(T::into_owned).collect()
    }
    fn held_bytes(&self) -> usize {
        let mut bytes = self.capacity() * size_of::<T>();
        for item in self {
            bytes += item.held_bytes();
        }
        bytes
    }
}

/// Implements [`Retain`] for structs. Fields after a semicolon hold nothing outside themselves. A number after `+` is added
/// to the bytes of each struct.
macro_rules! retain {
    ($($name:ident { $($field:tt),* $(; $($plain:ident),*)? } $(+ $more:ident)?)*) => {$(
        impl Retain for $name<'_> {
            type Owned = $name<'static>;
            fn into_owned(self) -> Self::Owned {
                $name { $($field: Retain::into_owned(self.$field),)* $($($plain: self.$plain),*)? }
            }
            fn held_bytes(&self) -> usize {
                0 $(+ Retain::held_bytes(&self.$field))* $(+ $more)?
            }
        }
    )*};
}
pub(crate) use retain;
