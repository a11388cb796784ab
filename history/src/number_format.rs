//! How a user wants bytes to be read as numbers.

use cutape_render::Element;

use crate::values::{Layout, size_of};

/// How bytes are read as numbers.
#[derive(Clone, Debug)]
pub struct NumberFormat {
    /// The type; `None`: bytes.
    pub element: Option<&'static Element>,
    layout: Option<Layout>,
    /// The bytes that the layout extends over.
    pub(crate) length: Option<u64>,
}

impl NumberFormat {
    /// Numbers of a type, or bytes; of a shape and strides, or all in a row.
    ///
    /// # Errors
    /// What is wrong with the shape.
    pub fn new(
        element: Option<&'static Element>,
        shape: Option<Vec<u64>>,
        strides: Option<Vec<u64>>,
    ) -> Result<Self, String> {
        let layout = shape.map(|shape| Layout::new(shape, strides)).transpose()?;
        let length = |layout: &Layout| {
            let length = layout.extent.checked_mul(size_of(element));
            length.ok_or_else(|| format!("shape {:?} is too large", layout.shape))
        };
        Ok(Self {
            element,
            length: layout.as_ref().map(length).transpose()?,
            layout,
        })
    }

    /// The layout of so many bytes.
    pub(crate) fn layout_of(&self, length: u64) -> Result<Layout, String> {
        let size = size_of(self.element);
        let name = self.element.map_or("byte", |element| element.name);
        if length < size {
            return Err(format!(
                "one {name} has {size} bytes, and there are {length}"
            ));
        }
        let Some(layout) = &self.layout else {
            return Layout::new(vec![length / size], None);
        };
        match self.length {
            Some(needed) if needed > length => Err(format!(
                "shape {:?} of {name} needs {needed} bytes, and there are {length}",
                layout.shape
            )),
            _ => Ok(layout.clone()),
        }
    }
}
