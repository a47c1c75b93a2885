//! Memory of a decoded Pod, and its copy without the bytes that it was read from, for the time in which it waits. Most
//! of a large review is nothing that a decision needs. Lists may be much larger decoded than as JSON (`{}`).

use std::borrow::Cow;

/// A value that may have to wait: a decoded Pod, its parts, and types that hold one.
pub trait Kept {
    type Owned;
    fn into_owned(self) -> Self::Owned;
    /// Returns the bytes that the value holds elsewhere, or a few more: texts, borrowed or owned, and items of lists.
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
