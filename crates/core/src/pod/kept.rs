//! The memory of a decoded Pod, and its copy without the bytes that it was read from, for the time in which the Pod waits.
//! A decision needs only a small part of most large reviews. A decoded list may take much more memory than its JSON (`{}`).

use std::borrow::Cow;

/// A value that may have to wait: a decoded Pod, a part of one, or a type that contains one.
pub trait Kept {
    type Owned;
    fn into_owned(self) -> Self::Owned;
    /// Returns the bytes that the value holds outside itself, or a few more: texts, borrowed or owned, and items of lists.
    fn held(&self) -> usize;
}

impl Kept for Cow<'_, str> {
    type Owned = Cow<'static, str>;
    fn into_owned(self) -> Cow<'static, str> {
        self.into_owned().into()
    }
    fn held(&self) -> usize {
        self.len()
    }
}

impl<T: Kept> Kept for Option<T> {
    type Owned = Option<T::Owned>;
    fn into_owned(self) -> Self::Owned {
        self.map(T::into_owned)
    }
    fn held(&self) -> usize {
        match self {
            Some(value) => value.held(),
            None => 0,
        }
    }
}

impl<T: Kept> Kept for Vec<T> {
    type Owned = Vec<T::Owned>;
    fn into_owned(self) -> Self::Owned {
        self.into_iter().map(T::into_owned).collect()
    }
    fn held(&self) -> usize {
        let mut bytes = self.capacity() * size_of::<T>();
        for item in self {
            bytes += item.held();
        }
        bytes
    }
}

/// Implements [`Kept`] for structs. Fields after a semicolon hold nothing outside themselves. A number after `+` is added
/// to the bytes of each struct.
macro_rules! kept {
    ($($name:ident { $($field:tt),* $(; $($plain:ident),*)? } $(+ $more:ident)?)*) => {$(
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
